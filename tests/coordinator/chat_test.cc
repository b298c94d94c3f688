#include "coordinator/chat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::ConvertSmall;
using ::shoal::testing::OpenModel;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;

// A character with which the forward pass fails: its embedding is one large value, and the final
// norm's weight in that place takes it beyond float.
constexpr char kPoison = 'Z';
constexpr int64_t kHidden = 36;

void Poison(TensorSpec& spec, std::vector<float>& values) {
  if (spec.name == "model.embed_tokens.weight") {
    std::fill_n(values.begin() + kPoison * kHidden, kHidden, 0.0F);
    values[kPoison * kHidden] = 1000.0F;
  } else if (spec.name == "model.norm.weight") {
    values[0] = 1e38F;
  }
}

std::vector<int32_t> Joined(std::vector<std::vector<int32_t>> parts) {
  std::vector<int32_t> ids;
  for (const std::vector<int32_t>& part : parts) {
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

class ChatTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    suite_dir_ = new TempDir();
    SmallCheckpoint checkpoint;
    checkpoint.mutate = Poison;
    ConvertSmall(checkpoint, *suite_dir_);
  }
  static void TearDownTestSuite() { delete suite_dir_; }
  void SetUp() override {
    model_ = OpenModel(*suite_dir_ / "container", {.context_tokens = 4096});
    SHOAL_ASSERT_OK_AND_ASSIGN(auto chat, Chat::Make(*model_, std::nullopt));
    chat_ = std::make_unique<Chat>(std::move(chat));
    SHOAL_ASSERT_OK_AND_ASSIGN(auto layout, ChatTemplate::Make(model_->tokenizer()));
    template_ = std::make_unique<ChatTemplate>(std::move(layout));
    options_.max_tokens = 3;
    options_.ignore_end_of_text = true;
  }

  absl::StatusOr<GenerateResult> Answer(const std::string& message, std::stop_token stop = {}) {
    return chat_->Answer(message, options_, nullptr, std::move(stop));
  }
  static std::stop_token AlreadyStopped() {
    std::stop_source source;
    source.request_stop();
    return source.get_token();
  }
  std::vector<int32_t> First(const std::string& message) const {
    return template_->Conversation({{ChatRole::kUser, message}});
  }
  // A later message and the opening of its answer.
  std::vector<int32_t> Next(const std::string& message) const {
    return Joined({template_->Message({ChatRole::kUser, message}), template_->GenerationPrompt()});
  }
  std::vector<int32_t> End() const { return {template_->end_of_message()}; }
  const std::vector<int32_t>& Held() const { return chat_->session().tokens(); }

  TempDir dir_;
  GenerateOptions options_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Chat> chat_;
  std::unique_ptr<ChatTemplate> template_;

 private:
  inline static TempDir* suite_dir_ = nullptr;
};

TEST_F(ChatTest, AnAnswerCutByLengthIsClosedBeforeTheNextMessage) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult first, Answer("hi"));
  ASSERT_EQ(first.finish_reason, FinishReason::kLength);
  EXPECT_EQ(Held(), Joined({First("hi"), first.ids}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult second, Answer("more"));
  EXPECT_EQ(Held(), Joined({First("hi"), first.ids, End(), Next("more"), second.ids}));
}

TEST_F(ChatTest, AMessageThatWasStoppedIsComputedWithTheNext) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult stopped, Answer("hi", AlreadyStopped()));
  EXPECT_EQ(stopped.finish_reason, FinishReason::kCallerStopped);
  EXPECT_TRUE(Held().empty());
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Answer("more"));
  EXPECT_EQ(Held(), Joined({First("hi"), End(), Next("more"), result.ids}));
}

TEST_F(ChatTest, SaveComputesWhatIsOwedAndLoadForgetsIt) {
  SHOAL_ASSERT_OK(Answer("hi", AlreadyStopped()));
  SHOAL_ASSERT_OK(chat_->Save(dir_ / "state"));
  EXPECT_EQ(Held(), First("hi"));
  SHOAL_ASSERT_OK(Answer("more", AlreadyStopped()));
  SHOAL_ASSERT_OK(chat_->Load(dir_ / "state"));
  EXPECT_EQ(Held(), First("hi"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Answer("again"));
  EXPECT_EQ(Held(), Joined({First("hi"), End(), Next("again"), result.ids}));
}

TEST_F(ChatTest, AMessageThatFailsBeforeAnythingWasRunCountsAsNotGiven) {
  EXPECT_THAT(Answer(std::string(5000, 'a')),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("context of 4096")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Answer("hi"));
  EXPECT_EQ(Held(), Joined({First("hi"), result.ids}));
}

TEST_F(ChatTest, WhatAFailingSaveComputedIsNotComputedAgain) {
  const std::string message = std::string(700, 'a') + kPoison;
  SHOAL_ASSERT_OK(Answer(message, AlreadyStopped()));
  const int64_t chunk = model_->mode().plan.prefill_chunk_tokens;
  const std::vector<int32_t> prompt = First(message);
  ASSERT_LT(chunk, 700);  // so that the first chunk has no poison
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_THAT(chat_->Save(dir_ / "state"),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
    EXPECT_EQ(Held(), std::vector<int32_t>(prompt.begin(), prompt.begin() + chunk));
  }
}

TEST_F(ChatTest, WhatAFailingAnswerComputedIsNotComputedAgain) {
  const std::string message = std::string(700, 'a') + kPoison;
  const int64_t chunk = model_->mode().plan.prefill_chunk_tokens;
  const std::vector<int32_t> prompt = First(message);
  for (const std::string& given : {message, std::string("again")}) {
    EXPECT_THAT(Answer(given), StatusIs(absl::StatusCode::kInternal, HasSubstr("not finite")));
    EXPECT_EQ(Held(), std::vector<int32_t>(prompt.begin(), prompt.begin() + chunk));
  }
}

TEST_F(ChatTest, ResetForgetsWhatIsHeldAndWhatIsOwed) {
  SHOAL_ASSERT_OK(Answer("hi"));
  SHOAL_ASSERT_OK(Answer("more", AlreadyStopped()));
  chat_->Reset();
  EXPECT_TRUE(Held().empty());
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Answer("new"));
  EXPECT_EQ(Held(), Joined({First("new"), result.ids}));
}

}  // namespace
}  // namespace shoal

#include "coordinator/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::ConvertSmall;
using ::shoal::testing::NewSession;
using ::shoal::testing::OpenModel;
using ::shoal::testing::RvqModel;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kContext = 32;

// Greedy, and not ended by the model.
GenerateOptions Greedy(int64_t max_tokens) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.ignore_end_of_text = true;
  return options;
}

class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = OpenModel(RvqModel(), {.context_tokens = kContext});
    session_ = NewSession(*model_);
  }
  absl::StatusOr<GenerateResult> Run(const std::vector<int32_t>& prompt,
                                     const GenerateOptions& options) {
    return Generate(*model_, *session_, prompt, options, nullptr);
  }
  // Stops inside a prompt, after its first two tokens.
  void StopInsideAPrompt() {
    std::stop_source source;
    Session::ExtendOptions options;
    options.chunk_tokens = 2;
    options.stop = source.get_token();
    options.on_progress = [&](int64_t, int64_t) { source.request_stop(); };
    EXPECT_THAT(session_->Extend(Prompt(), options),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
    ASSERT_EQ(session_->position(), 2);
  }
  std::vector<int32_t> Prompt() const {
    return model_->tokenizer().EncodeText("Once upon a time there was");
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;
};

TEST_F(GenerateTest, PromptAsLongAsTheContextGivesNoToken) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result,
                             Run(std::vector<int32_t>(kContext, 7), Greedy(5)));
  EXPECT_EQ(result.finish_reason, FinishReason::kContextFull);
  EXPECT_THAT(result.ids, IsEmpty());
  EXPECT_EQ(result.prompt_tokens, kContext);
  EXPECT_EQ(session_->position(), kContext);
}

TEST_F(GenerateTest, FillsTheContextToItsLastToken) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result,
                             Run(std::vector<int32_t>(kContext - 3, 7), Greedy(100)));
  EXPECT_EQ(result.finish_reason, FinishReason::kContextFull);
  EXPECT_EQ(result.ids.size(), 3);
  EXPECT_EQ(session_->position(), kContext);
}

TEST_F(GenerateTest, NoTokensAskedForRunsThePromptAlone) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Run(Prompt(), Greedy(0)));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_THAT(result.ids, IsEmpty());
  EXPECT_EQ(session_->tokens(), Prompt());
}

TEST_F(GenerateTest, EmptyPromptNeedsASessionThatHoldsSomething) {
  EXPECT_THAT(Run({}, Greedy(1)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prompt is empty")));
}

TEST_F(GenerateTest, EmptyPromptGoesOnAsIfNothingHadBeenInBetween) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult whole, Run(Prompt(), Greedy(6)));
  session_->Reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult head, Run(Prompt(), Greedy(2)));
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult tail, Run({}, Greedy(4)));
  std::vector<int32_t> ids = head.ids;
  ids.insert(ids.end(), tail.ids.begin(), tail.ids.end());
  EXPECT_EQ(ids, whole.ids);
  EXPECT_EQ(head.text + tail.text, whole.text);
}

TEST_F(GenerateTest, EmptyPromptIsRefusedAfterAStopInsideAPrompt) {
  StopInsideAPrompt();
  EXPECT_THAT(Run({}, Greedy(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rest of the prompt")));
  TempDir dir;
  SHOAL_ASSERT_OK(session_->Save(dir / "state"));
  session_->Reset();
  SHOAL_ASSERT_OK(session_->Load(dir / "state"));
  EXPECT_THAT(Run({}, Greedy(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rest of the prompt")));
  SHOAL_EXPECT_OK(Run({11}, Greedy(1)));
}

TEST_F(GenerateTest, TheCallerEndsItWithTheTokenItHasSeen) {
  std::vector<int32_t> seen;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const GenerateResult result,
      Generate(*model_, *session_, Prompt(), Greedy(10), [&](const TokenEvent& event) {
        seen.push_back(event.id);
        return seen.size() < 3;
      }));
  EXPECT_EQ(result.finish_reason, FinishReason::kCallerStopped);
  EXPECT_EQ(result.ids.size(), 3);
  EXPECT_EQ(result.ids, seen);
  std::vector<int32_t> held = Prompt();
  held.insert(held.end(), seen.begin(), seen.end());
  EXPECT_EQ(session_->tokens(), held);
}

TEST_F(GenerateTest, AStopBeforeThePromptRunsNothing) {
  std::stop_source source;
  source.request_stop();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const GenerateResult result,
      Generate(*model_, *session_, Prompt(), Greedy(10), nullptr, source.get_token()));
  EXPECT_EQ(result.finish_reason, FinishReason::kCallerStopped);
  EXPECT_EQ(result.prompt_tokens, 0);
  EXPECT_EQ(session_->position(), 0);
}

TEST_F(GenerateTest, AStopIdEndsTheTextAndIsKept) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult whole, Run(Prompt(), Greedy(8)));
  const auto first = std::find(whole.ids.begin(), whole.ids.end(), whole.ids[4]);
  session_->Reset();
  GenerateOptions options = Greedy(8);
  options.stop_ids = {whole.ids[4]};
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Run(Prompt(), options));
  EXPECT_EQ(result.finish_reason, FinishReason::kEndOfText);
  EXPECT_EQ(result.ids, std::vector<int32_t>(whole.ids.begin(), first + 1));
  EXPECT_EQ(session_->tokens().back(), whole.ids[4]);
}

TEST_F(GenerateTest, AStopStringIsFoundAcrossTheBorderOfTokens) {
  std::vector<std::string> pieces;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const GenerateResult whole,
      Generate(*model_, *session_, Prompt(), Greedy(10), [&](const TokenEvent& event) {
        pieces.emplace_back(event.text);
        return true;
      }));
  const auto border = std::adjacent_find(
      pieces.begin(), pieces.end(), [](const std::string& left, const std::string& right) {
        return !left.empty() && !right.empty() &&
               std::isprint(static_cast<unsigned char>(left.back())) != 0 &&
               std::isprint(static_cast<unsigned char>(right.front())) != 0;
      });
  ASSERT_NE(border, pieces.end());
  const std::string stop = {border->back(), (border + 1)->front()};
  session_->Reset();
  GenerateOptions options = Greedy(10);
  options.stop = {stop};
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result, Run(Prompt(), options));
  EXPECT_EQ(result.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST_F(GenerateTest, TheTextIsThatOfTheIdsAndOfTheEvents) {
  std::string events;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const GenerateResult result,
      Generate(*model_, *session_, Prompt(), Greedy(20), [&](const TokenEvent& event) {
        events += std::string(event.text);
        return true;
      }));
  StreamingDetokenizer detokenizer(model_->tokenizer());
  std::string text;
  for (const int32_t id : result.ids) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string piece, detokenizer.Push(id));
    text += piece;
  }
  text += detokenizer.Flush();
  EXPECT_EQ(result.text, text);
  EXPECT_EQ(result.text, events);
}

TEST(GeneratePaddedVocabularyTest, NeverChoosesAnIdWithoutAToken) {
  TempDir dir;
  SmallCheckpoint checkpoint;
  checkpoint.vocab_size = 600;
  checkpoint.mutate = [](TensorSpec& spec, std::vector<float>& values) {
    if (spec.name == "lm_head.weight") {
      // Opposite rows: one of them has the largest logit by far.
      std::fill_n(values.begin() + 550 * 36, 36, 100.0F);
      std::fill_n(values.begin() + 551 * 36, 36, -100.0F);
    }
  };
  const auto model = OpenModel(ConvertSmall(checkpoint, dir), {.context_tokens = 64});
  const auto session = NewSession(*model);
  SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>{65, 66}));
  const auto& logits = session->logits();
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  ASSERT_TRUE(best == 550 || best == 551) << best;
  for (const double temperature : {0.0, 1.0}) {
    GenerateOptions options = Greedy(10);
    options.sampling.temperature = temperature;
    SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result,
                               Generate(*model, *session, {}, options, nullptr));
    EXPECT_THAT(result.ids, ::testing::Each(::testing::Lt(512)));
  }
}

}  // namespace
}  // namespace shoal

#include "coordinator/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;

// Both sides add a few hundred doubles of magnitude 10 in different orders.
constexpr double kTolerance = 1e-9;

class PerplexityTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    suite_dir_ = new TempDir();
    SmallCheckpoint checkpoint;
    checkpoint.vocab_size = 600;
    ConvertSmall(checkpoint, *suite_dir_);
  }
  static void TearDownTestSuite() { delete suite_dir_; }
  void SetUp() override {
    model_ = OpenModel(*suite_dir_ / "container", {.context_tokens = 64});
    session_ = NewSession(*model_);
  }

  // -ln softmax(logits after `context`)[target], straight from the definition.
  double Nats(std::vector<int32_t> context, int32_t target) {
    session_->Reset();
    EXPECT_THAT(session_->Extend(context), testing::IsOk());
    double sum = 0;
    for (const float logit : session_->logits()) {
      sum += std::exp(static_cast<double>(logit));
    }
    return std::log(sum) - session_->logits()[static_cast<size_t>(target)];
  }
  absl::StatusOr<TextScore> Score(const std::vector<int32_t>& ids, int64_t window_tokens) {
    ScoreOptions options;
    options.window_tokens = window_tokens;
    return ScoreTokens(*model_, *session_, ids, options);
  }

  // "Twelve words" and so on: single bytes, and two special tokens of more.
  const std::vector<int32_t> ids_ = {84, 119, 101, 108, 118, 101, 257, 119, 111, 258, 100, 115};
  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;

 private:
  inline static TempDir* suite_dir_ = nullptr;
};

TEST_F(PerplexityTest, OneContextPredictsEveryTokenFromAllBeforeIt) {
  double nats = 0;
  for (size_t i = 1; i < ids_.size(); ++i) {
    nats += Nats({ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(i)}, ids_[i]);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const TextScore score, Score(ids_, 0));
  EXPECT_EQ(score.predictions, 11);
  EXPECT_NEAR(score.nll_sum, nats, kTolerance);
  EXPECT_NEAR(score.nats_per_token(), nats / 11, kTolerance);
  EXPECT_NEAR(score.perplexity(), std::exp(nats / 11), 1e-6);
  // Nine single bytes, "<|im_end|>" and "<|im_user|>".
  EXPECT_EQ(score.bytes, 9 + 10 + 11);
  EXPECT_NEAR(score.bits_per_byte(), nats / std::log(2.0) / 30, kTolerance);
  EXPECT_EQ(session_->tokens(), ids_);
}

TEST_F(PerplexityTest, AWindowPredictsItsTokensAndTheNextFromItselfAlone) {
  // Windows of 5 begin at 0, 5 and 10; the last holds token 10 and predicts token 11.
  double nats = 0;
  for (size_t target = 1; target < ids_.size(); ++target) {
    const size_t begin = (target - 1) / 5 * 5;
    nats += Nats({ids_.begin() + static_cast<std::ptrdiff_t>(begin),
                  ids_.begin() + static_cast<std::ptrdiff_t>(target)},
                 ids_[target]);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const TextScore score, Score(ids_, 5));
  EXPECT_EQ(score.predictions, 11);
  EXPECT_NEAR(score.nll_sum, nats, kTolerance);
}

TEST_F(PerplexityTest, GivesTheLogitsOfEveryPositionComputed) {
  for (const int64_t window : {0, 5}) {
    int64_t rows = 0;
    ScoreOptions options;
    options.window_tokens = window;
    options.on_logits = [&](std::span<const float> logits) {
      EXPECT_EQ(logits.size(), 600);
      ++rows;
      return absl::OkStatus();
    };
    int64_t done = 0;
    options.on_progress = [&](int64_t now, int64_t total) {
      EXPECT_GT(now, done);
      EXPECT_EQ(total, window == 0 ? 12 : 11);
      done = now;
    };
    SHOAL_ASSERT_OK(ScoreTokens(*model_, *session_, ids_, options));
    EXPECT_EQ(rows, window == 0 ? 12 : 11);
    EXPECT_EQ(done, rows);
  }
}

TEST_F(PerplexityTest, OneTokenPredictsNothing) {
  for (const int64_t window : {0, 5}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const TextScore score, Score({65}, window));
    EXPECT_EQ(score.predictions, 0);
    EXPECT_EQ(score.nll_sum, 0);
  }
}

TEST_F(PerplexityTest, AWindowMayBeLongerThanTheTextButNotThanTheContext) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const TextScore whole, Score(ids_, 0));
  SHOAL_ASSERT_OK_AND_ASSIGN(const TextScore window, Score(ids_, 1000));
  EXPECT_EQ(window.nll_sum, whole.nll_sum);
  EXPECT_THAT(Score(std::vector<int32_t>(100, 65), 70),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("context of 64")));
  SHOAL_EXPECT_OK(Score(std::vector<int32_t>(100, 65), 64));
}

TEST_F(PerplexityTest, RefusesWhatCannotBeScoredBeforeAnythingIsRun) {
  SHOAL_ASSERT_OK(session_->Extend(ids_));
  EXPECT_THAT(Score({}, 0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tokens")));
  EXPECT_THAT(Score(ids_, -1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("window_tokens is -1")));
  // In the vocabulary of 600, but beyond the 256 ranks and 256 special tokens.
  EXPECT_THAT(Score({65, 66, 550}, 0), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("550")));
  EXPECT_EQ(session_->tokens(), ids_);
}

}  // namespace
}  // namespace shoal

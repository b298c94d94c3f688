// Nodes that compute wrong results, and what becomes of them and of the answers they had a part in.
#include "coordinator/pool/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/generate.h"
#include "coordinator/model.h"
#include "coordinator/session.h"
#include "tests/coordinator/pool/pool_fixture.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::kLayer;
using ::shoal::testing::kWhole;
using ::shoal::testing::MakeBatch;
using ::shoal::testing::StatusIs;
using ::shoal::testing::Units;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class AuditTest : public testing::PoolTest {
 protected:
  void SetUp() override {
    PoolTest::SetUp();
    options_.audit_share = 1;
    options_.log = [this](absl::string_view line) {
      MutexLock lock(&mutex_);
      absl::StrAppend(&log_, line, "\n");
    };
  }
  std::string log() {
    MutexLock lock(&mutex_);
    return log_;
  }

 private:
  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(AuditTest, WhoDiffersFromThisProcessIsLeftAlone) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  nodes_[0]->backend().LieEvery(1);
  Connect(Local());
  ExpectTheSameBits();
  const PoolNodeStatus liar = StatusOf(0);
  EXPECT_EQ(liar.state, NodeState::kQuarantined);
  // MakeBatch's rows are 64 wide, so that the sum is of the first; the node takes 4 rows at once.
  EXPECT_THAT(
      liar.evidence,
      AllOf(HasSubstr(absl::StrCat("layer ", kLayer)), HasSubstr("units 0-1"), HasSubstr(": 1 of "),
            HasSubstr("row 0, column 3 is"), HasSubstr("by the coordinator")));
  EXPECT_THAT(log(), AllOf(HasSubstr("node a at "), HasSubstr(liar.evidence)));
  EXPECT_EQ(StatusOf(1).state, NodeState::kLive);
  EXPECT_THAT(StatusOf(1).evidence, IsEmpty());
  EXPECT_GT(StatusOf(1).audits, 0);
  EXPECT_EQ(backend_->Retractions(), 1U);
  const int calls = nodes_[0]->backend().calls();
  ExpectTheSameBits();
  EXPECT_EQ(nodes_[0]->backend().calls(), calls) << "it was asked again";
  EXPECT_EQ(backend_->Retractions(), 1U);
}

TEST_F(AuditTest, SoundNodesAreNotAccused) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  ExpectTheSameBits();
  for (size_t node = 0; node < 2; ++node) {
    EXPECT_EQ(StatusOf(node).state, NodeState::kLive);
    EXPECT_EQ(StatusOf(node).audits, 2);  // six rows, four at once
  }
  EXPECT_EQ(backend_->Retractions(), 0U);
}

TEST_F(AuditTest, AnotherNodeShowsThatOneContradictsItself) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  nodes_[1]->backend().LieEvery(2);
  Connect();
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(1).state, NodeState::kQuarantined);
  EXPECT_THAT(StatusOf(1).evidence, HasSubstr("by the same node when it was asked again"));
  EXPECT_EQ(StatusOf(0).state, NodeState::kLive);
}

TEST_F(AuditTest, WhereEachRepeatsItselfNobodyIsTrusted) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  nodes_[1]->backend().LieEvery(1);
  Connect();
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("a ("), HasSubstr("b ("), HasSubstr("in quarantine"))));
  for (size_t node = 0; node < 2; ++node) {
    EXPECT_EQ(StatusOf(node).state, NodeState::kQuarantined);
    EXPECT_THAT(StatusOf(node).evidence, HasSubstr("nobody can tell which"));
  }
}

TEST_F(AuditTest, WithoutAnotherHolderAtTheMomentItIsLeftOut) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  nodes_[1]->Kill();
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(0).audits, 0);
  EXPECT_EQ(StatusOf(0).state, NodeState::kLive);
}

TEST_F(AuditTest, RefusesANodeThatNobodyCanCheck) {
  AddNode("a", {kWhole});
  AddNode("b", {Units(0, 2)});
  EXPECT_THAT(Open(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("node a alone holds units 2-2"), HasSubstr("--copies 2"))));
  EXPECT_THAT(Open(Local()), testing::IsOk());
}

TEST_F(AuditTest, AQuarantineOutlastsStreamsAndPlansUntilTheNodeIsTakenBack) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  options_.plan = PlanOf({{Units(0, 2)}, {Units(2, 3)}}, 1);
  nodes_[0]->backend().LieEvery(1);
  Connect(Local());
  ExpectTheSameBits();
  nodes_[0]->backend().LieEvery(0);
  nodes_[0]->Kill();
  nodes_[0]->Start();
  EXPECT_EQ(StatusOf(0).state, NodeState::kQuarantined);
  SHOAL_ASSERT_OK(backend_->ChangePlan(PlanOf({{Units(0, 1)}, {Units(1, 3)}}, 2), {}));
  EXPECT_EQ(StatusOf(0).state, NodeState::kQuarantined);
  const int calls = nodes_[0]->backend().calls();
  ExpectTheSameBits();
  EXPECT_EQ(nodes_[0]->backend().calls(), calls);
  SHOAL_ASSERT_OK(backend_->UndrainNode("a"));
  AwaitLive(0);
  ExpectTheSameBits();
  EXPECT_GT(nodes_[0]->backend().calls(), calls);
}

TEST_F(AuditTest, AShareOfTheAnswersFindsAShareOfLies) {
  options_.audit_share = 0.05;
  batch_ = MakeBatch(1);
  AddNode("a", {kWhole});
  nodes_[0]->backend().LieEvery(20);
  Connect(Local());
  // 200 tokens of 60 layers, of which one is found with a chance of 1 - (1 - 1/400)^12000 = 1 - 10^-13.
  constexpr int kLayers = 12'000;
  int layers = 0;
  std::vector<int64_t> out;
  while (layers < kLayers && StatusOf(0).state != NodeState::kQuarantined) {
    SHOAL_ASSERT_OK(Execute(out));
    ++layers;
  }
  EXPECT_EQ(StatusOf(0).state, NodeState::kQuarantined);
  EXPECT_GT(layers, 1);
}

// Answers of a model whose experts a liar computes too.
class AuditedAnswerTest : public AuditTest {
 protected:
  static constexpr int64_t kTokens = 12;

  std::unique_ptr<Model> OpenModel(std::optional<PoolOptions> pool, bool pool_alone) {
    ModelOptions options;
    options.context_tokens = 64;
    options.num_threads = 1;
    options.pool = std::move(pool);
    options.pool_alone = pool_alone;
    auto model = Model::Open(container_->directory(), options);
    EXPECT_THAT(model, testing::IsOk());
    return *std::move(model);
  }

  absl::StatusOr<GenerateResult> Answer(const Model& model, Session& session,
                                        const std::function<bool(const TokenEvent&)>& on_token) {
    GenerateOptions options;
    options.max_tokens = kTokens;
    options.ignore_end_of_text = true;
    const std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
    return Generate(model, session, prompt, options, on_token);
  }

  std::vector<int32_t> Truth() {
    const std::unique_ptr<Model> model = OpenModel(std::nullopt, false);
    auto session = model->NewSession();
    EXPECT_THAT(session, testing::IsOk());
    auto result = Answer(*model, **session, {});
    EXPECT_THAT(result, testing::IsOk());
    return result->ids;
  }
};

TEST_F(AuditedAnswerTest, IsComputedAgainFromItsFirstTokenAndToldOnce) {
  AddNode("a", {kWhole});
  const std::unique_ptr<Model> model = OpenModel(options_, false);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, model->NewSession());
  std::vector<int32_t> told;
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerateResult result,
                             Answer(*model, *session, [&](const TokenEvent& event) {
                               told.push_back(event.id);
                               if (told.size() == 4) {
                                 nodes_[0]->backend().LieEvery(1);
                               }
                               return true;
                             }));
  EXPECT_EQ(model->pool()->Nodes()[0].state, NodeState::kQuarantined);
  EXPECT_EQ(result.ids, Truth());
  EXPECT_EQ(told, result.ids);
  EXPECT_EQ(result.prompt_tokens, 5);
  EXPECT_EQ(session->position(), 5 + kTokens);
}

TEST_F(AuditedAnswerTest, FailsWhereATokenThatWasToldIsWrong) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  const std::unique_ptr<Model> model = OpenModel(options_, true);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, model->NewSession());
  // While nobody can check it.
  nodes_[1]->Kill();
  nodes_[0]->backend().LieEvery(3);
  const std::vector<int32_t> truth = Truth();
  std::vector<int32_t> told;
  const auto result = Answer(*model, *session, [&](const TokenEvent& event) {
    told.push_back(event.id);
    if (told.size() == 6) {
      nodes_[1]->Start();
      for (int i = 0; i < 6000 && model->pool()->Nodes()[1].state != NodeState::kLive; ++i) {
        absl::SleepFor(absl::Milliseconds(10));
      }
    }
    return true;
  });
  size_t wrong = 0;
  while (wrong < told.size() && told[wrong] == truth[wrong]) {
    ++wrong;
  }
  ASSERT_LT(wrong, 6U) << "the lies changed nothing";
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kAborted,
                               AllOf(HasSubstr(absl::StrCat("token ", wrong, " of the answer")),
                                     HasSubstr("quarantine"))));
}

TEST_F(AuditedAnswerTest, ASessionThatMayBeWrongIsNeitherSavedNorGoneOnWith) {
  AddNode("a", {kWhole});
  const std::unique_ptr<Model> model = OpenModel(options_, false);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>{3, 1, 4}));
  EXPECT_FALSE(session->IsRetracted());
  nodes_[0]->backend().LieEvery(1);
  EXPECT_THAT(session->Extend(std::vector<int32_t>{1}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("wrong results")));
  EXPECT_TRUE(session->IsRetracted());
  EXPECT_EQ(session->position(), 3);
  EXPECT_THAT(session->Extend(std::vector<int32_t>{1}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("wrong results")));
  EXPECT_THAT(session->Save(*dir_ / "session"),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("wrong results")));
  session->Reset();
  SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>{3, 1, 4, 1}));
  SHOAL_ASSERT_OK(session->Save(*dir_ / "session"));
}

}  // namespace
}  // namespace shoal

// The plan of the bundled model against sums made by hand from its config.
#include "coordinator/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "common/container/container.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MemoryPlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(container_,
                               Container::Open(std::string(SHOAL_TEST_MODELS) + "/tiny-rvq3"));
    options_.budget_bytes = uint64_t{1} << 30;
  }
  absl::StatusOr<MemoryPlan> Plan() { return PlanMemory(container_->manifest(), options_); }
  static uint64_t PartOf(const MemoryPlan& plan, const std::string& name) {
    const auto it = std::find_if(plan.floor.begin(), plan.floor.end(),
                                 [&](const MemoryPart& part) { return part.name == name; });
    EXPECT_NE(it, plan.floor.end()) << name;
    return it == plan.floor.end() ? 0 : it->bytes;
  }

  std::unique_ptr<Container> container_;
  PlanOptions options_;
};

TEST_F(MemoryPlanTest, CacheOfLatentsIsRankPlusRotaryPerAttentionLayerInFloat) {
  const ModelConfig& config = container_->config();
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  // Layers 4 and 8 of 8 are MLA; 128 latents and 32 rotary dimensions of 4 bytes each.
  EXPECT_EQ(config.mla.kv_lora_rank, 128);
  EXPECT_EQ(config.mla.qk_rope_head_dim, 32);
  EXPECT_EQ(plan.kv_bytes_per_token, 2 * (128 + 32) * 4);
  EXPECT_EQ(PartOf(plan, "kv_cache"), plan.kv_bytes_per_token * 4096);
}

TEST_F(MemoryPlanTest, PartsAddUpToTheFloor) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  uint64_t sum = 0;
  for (const MemoryPart& part : plan.floor) {
    sum += part.bytes;
  }
  EXPECT_EQ(sum, plan.floor_bytes);
  EXPECT_EQ(plan.floor.back().name, "expert_cache");
}

TEST_F(MemoryPlanTest, AnAuditHasThreeMessagesForOne) {
  const auto pool_bytes = [this](int num_nodes, bool audits) {
    options_.num_nodes = num_nodes;
    options_.audits = audits;
    const absl::StatusOr<MemoryPlan> plan = Plan();
    EXPECT_THAT(plan, testing::IsOk());
    return plan.ok() ? PartOf(*plan, "pool") : 0;
  };
  EXPECT_LT(pool_bytes(2, false), pool_bytes(2, true));
  EXPECT_EQ(pool_bytes(6, false), pool_bytes(2, true));
}

TEST_F(MemoryPlanTest, RequestsOfClientsAreCounted) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan without, Plan());
  options_.client_bytes = 12345;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan with, Plan());
  EXPECT_EQ(PartOf(with, "clients"), 12345);
  EXPECT_EQ(with.floor_bytes, without.floor_bytes + 12345);
}

TEST_F(MemoryPlanTest, TheCacheGetsWhatTheBudgetLeaves) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan floor, Plan());
  options_.budget_bytes = floor.floor_bytes;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan least, Plan());
  EXPECT_EQ(least.cache_records, container_->config().moe.num_experts_per_token);
  options_.budget_bytes = floor.floor_bytes + 10 * floor.record_bytes + floor.record_bytes - 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan more, Plan());
  EXPECT_EQ(more.cache_records, least.cache_records + 10);
  options_.budget_bytes = uint64_t{1} << 40;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan all, Plan());
  EXPECT_EQ(all.cache_records,
            container_->config().num_moe_layers() * container_->config().moe.num_experts);
}

TEST_F(MemoryPlanTest, RecommendationIsUpToThreeWorkingSetsAboveTheFloor) {
  options_.budget_bytes.reset();
  options_.usable_bytes = uint64_t{2} << 30;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  EXPECT_EQ(plan.working_set_bytes, 7 * 4 * plan.record_bytes);
  EXPECT_EQ(plan.budget_bytes, plan.recommended_bytes);
  // Two GiB have room for the whole recommendation of a model this small.
  EXPECT_EQ(plan.recommended_bytes, plan.floor_bytes + 3 * plan.working_set_bytes);
}

TEST_F(MemoryPlanTest, BudgetBelowTheFloorIsPlannedAndRefusedWithTheTable) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  EXPECT_TRUE(plan.fits);
  SHOAL_EXPECT_OK(CheckFits(plan));
  options_.budget_bytes = plan.floor_bytes - 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan less, Plan());
  EXPECT_FALSE(less.fits);
  EXPECT_EQ(less.floor_bytes, plan.floor_bytes);
  EXPECT_EQ(less.cache_records, container_->config().moe.num_experts_per_token);
  EXPECT_THAT(CheckFits(less),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("trunk"), HasSubstr("kv_cache"), HasSubstr("expert_cache"),
                             HasSubstr("Raise --budget"))));
}

TEST_F(MemoryPlanTest, WithoutABudgetAMachineTooSmallDoesNotFitUnlessAskedFor) {
  options_.budget_bytes.reset();
  options_.usable_bytes = uint64_t{20} << 20;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.recommended_bytes, plan.floor_bytes);
  EXPECT_THAT(CheckFits(plan),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("usable memory of 20.0 MiB"), HasSubstr("trunk"),
                             HasSubstr("insist with --budget"))));
  options_.budget_bytes = uint64_t{1} << 30;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan asked, Plan());
  SHOAL_EXPECT_OK(CheckFits(asked));
}

TEST_F(MemoryPlanTest, CountsTokensLogitsAndTheSamplersScratchForEverySession) {
  options_.num_sessions = 3;
  options_.context_tokens = 1000;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  // Vocabulary 4096: a float logit, a double score, a 24-byte candidate, a mark; three ids a
  // position.
  EXPECT_EQ(PartOf(plan, "tokens_and_logits"), 3 * (4096 * (4 + 8 + 24 + 1) + 1000 * 3 * 4));
}

TEST_F(MemoryPlanTest, NoProductWraps) {
  Manifest manifest = container_->manifest();
  manifest.config.mla.kv_lora_rank = int64_t{1} << 40;
  options_.num_sessions = std::numeric_limits<int>::max();
  // 2 layers x 2^40 x 4 bytes x 4096 positions x 2^31 sessions are 2^86 bytes.
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, PlanMemory(manifest, options_));
  EXPECT_EQ(plan.floor_bytes, std::numeric_limits<uint64_t>::max());
  EXPECT_FALSE(plan.fits);
}

TEST_F(MemoryPlanTest, RecommendsTheFloorAloneWhereNoWorkingSetLeavesTheReserve) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  options_.budget_bytes.reset();
  constexpr uint64_t kReserve = uint64_t{256} << 20;
  options_.usable_bytes = plan.floor_bytes + plan.working_set_bytes + kReserve;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan one, Plan());
  EXPECT_EQ(one.recommended_bytes, one.floor_bytes + one.working_set_bytes);
  --*options_.usable_bytes;
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan none, Plan());
  EXPECT_EQ(none.recommended_bytes, none.floor_bytes);
  EXPECT_TRUE(none.fits);
}

TEST_F(MemoryPlanTest, ContextIsCheckedAgainstTheModel) {
  for (const int64_t context :
       {int64_t{0}, int64_t{-5}, container_->config().max_position_embeddings + 1}) {
    options_.context_tokens = context;
    EXPECT_THAT(Plan(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("this model takes")))
        << context;
  }
}

TEST_F(MemoryPlanTest, TableNamesEveryPartWithAUnit) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const MemoryPlan plan, Plan());
  const std::string table = FormatPlan(plan);
  for (const MemoryPart& part : plan.floor) {
    EXPECT_THAT(table, HasSubstr(part.name));
  }
  EXPECT_THAT(table, AllOf(HasSubstr("MiB"), HasSubstr("recommended"), HasSubstr("bytes a token")));
}

}  // namespace
}  // namespace shoal

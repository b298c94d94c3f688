// A small converted model and plans for it, for tests of pools and partitions.
#ifndef SHOAL_TESTS_COORDINATOR_POOL_SMALL_POOL_H_
#define SHOAL_TESTS_COORDINATOR_POOL_SMALL_POOL_H_

#include <string>

#include "common/container/container.h"
#include "coordinator/convert/converter.h"
#include "coordinator/pool/pool_plan.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"

namespace shoal::testing {

// Of SmallCheckpoint: layers 1 and 2 have 14 experts of 3 units (20 rows in units of 8).
inline constexpr ExpertSlice kSmallWhole{{0, 3}, {0, 14}};

// The small checkpoint in `directory`/model.
inline void MakeSmallContainer(const std::string& directory, ExpertCodec codec, uint64_t seed = 0) {
  SmallCheckpoint().WriteTo(directory + "/checkpoint");
  ConvertOptions options;
  options.experts = codec;
  options.seed = seed;
  SHOAL_ASSERT_OK(Convert(directory + "/checkpoint", directory + "/model", options, nullptr, {}));
}

// Two nodes with unequal shares: alpha computes two rectangles, beta the rest, and stores a part of
// alpha's beside.
inline PoolPlan SmallPlan(const std::string& identity) {
  PoolPlan plan;
  plan.identity = identity;
  plan.nodes = {{"alpha", "127.0.0.1:7001", {{{0, 2}, {0, 9}}, {{0, 3}, {9, 14}}}, {}},
                {"beta", "127.0.0.1:7002", {{{2, 3}, {0, 9}}}, {{{0, 1}, {0, 9}}}}};
  return plan;
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_POOL_SMALL_POOL_H_

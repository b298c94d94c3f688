// Plans of a pool on the wire.
#ifndef SHOAL_COORDINATOR_SERVICE_PLAN_MESSAGE_H_
#define SHOAL_COORDINATOR_SERVICE_PLAN_MESSAGE_H_

#include "absl/status/statusor.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

namespace v1 {
class Plan;
}  // namespace v1

void ToMessage(const PoolPlan& plan, v1::Plan* message);

// INVALID_ARGUMENT where a range is absent or empty; names the field. The rest is left to CheckPlan.
absl::StatusOr<PoolPlan> FromMessage(const v1::Plan& message);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_PLAN_MESSAGE_H_

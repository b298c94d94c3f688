// Measures the coordinator's own machine as a node measures itself, before a pool is planned in
// which it computes too.
#ifndef SHOAL_COORDINATOR_POOL_OWN_RATES_H_
#define SHOAL_COORDINATOR_POOL_OWN_RATES_H_

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/sync/clock.h"
#include "coordinator/pool/pool_forecast.h"

namespace shoal {

// Reads records of the container at random for about half a second and applies them for as long, on
// all processors. The result has the name and address kOwnAddress, no link, and holds everything.
// LocalExpertBackend::Open's and Execute's errors, and those of reading.
absl::StatusOr<NodeRates> MeasureOwnRates(const Container& container, const Clock& clock);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_OWN_RATES_H_

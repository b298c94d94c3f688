#include "coordinator/pool/own_rates.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_pool.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/expert_model.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_probe.h"
#include "expert_node/service/held_units.h"
#include "expert_node/slice_source.h"

namespace shoal {
namespace {

constexpr absl::Duration kMeasureTime = absl::Milliseconds(500);

}  // namespace

absl::StatusOr<NodeRates> MeasureOwnRates(const Container& container, const Clock& clock) {
  const Manifest& manifest = container.manifest();
  SHOAL_ASSIGN_OR_RETURN(ExpertModel model, ExpertModel::FromContainer(container));
  const std::vector<SliceSource> whole = {SliceOfContainer(container, model.whole())};
  ThreadPool pool(UsableCpus());
  LocalExpertBackend::Options options;
  options.cache_records = LocalExpertBackend::MinCacheRecords(manifest.config);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<LocalExpertBackend> backend,
                         LocalExpertBackend::Open(model, whole, options, pool, clock));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<HeldUnits> units,
                         HeldUnits::Open(model.layout, whole));
  NodeRates rates;
  rates.name = std::string(kOwnAddress);
  rates.address = std::string(kOwnAddress);
  rates.holds = {model.whole()};
  SHOAL_ASSIGN_OR_RETURN(const uint64_t read, MeasureReadRate(*units, kMeasureTime, clock));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t compute,
                         MeasureComputeRate(*backend, model, *units, kMeasureTime, clock));
  rates.read_bytes_per_second = static_cast<double>(read);
  rates.compute_bytes_per_second = static_cast<double>(compute);
  return rates;
}

}  // namespace shoal

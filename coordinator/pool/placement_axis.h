// The two ways to share out experts: every node a range of units of all experts, or a range of whole
// experts. Either is a line of equal items that is cut into ranges.
#ifndef SHOAL_COORDINATOR_POOL_PLACEMENT_AXIS_H_
#define SHOAL_COORDINATOR_POOL_PLACEMENT_AXIS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "coordinator/pool/pool_forecast.h"

namespace shoal {

enum class Placement { kUnits, kExperts };
absl::string_view PlacementName(Placement placement);  // "units", "experts"

// Units or experts [begin, end).
struct ItemRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ItemRange&) const = default;
};

// `total` things in whole numbers in proportion to `rates`, all positive, by the largest remainder;
// at least one for each where there are as many things as rates. Equal remainders: the first wins.
std::vector<int64_t> Apportion(int64_t total, std::span<const double> rates);

// `manifest` has MoE layers and outlives it. Thread-safe.
class PlacementAxis {
 public:
  PlacementAxis(const Manifest& manifest, Placement placement)
      : manifest_(manifest), placement_(placement) {}

  Placement placement() const { return placement_; }
  int64_t total() const;
  ExpertSlice SliceOf(ItemRange range) const;
  // The items of a slice; absent where it is not whole items of this axis.
  std::optional<ItemRange> RangeOf(const ExpertSlice& slice) const;

  // How many items each node gets in proportion to its rate.
  std::vector<int64_t> Shares(const PoolForecast& forecast, std::span<const NodeRates> nodes) const;
  // Slices of so many items one after the other; none where a size is 0.
  std::vector<std::vector<ExpertSlice>> Ranges(std::span<const int64_t> sizes) const;

 private:
  const Manifest& manifest_;
  const Placement placement_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_PLACEMENT_AXIS_H_

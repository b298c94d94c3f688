// Which part of the experts a file, a machine or a request is about: a rectangle of units and
// experts, the same in every MoE layer.
#ifndef SHOAL_COMMON_CONTAINER_EXPERT_SLICE_H_
#define SHOAL_COMMON_CONTAINER_EXPERT_SLICE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/container/unit_layout.h"

namespace shoal {

// A contiguous range of a layer's experts, [begin, end).
struct ExpertRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const ExpertRange&) const = default;
};

// These units of these experts.
struct ExpertSlice {
  UnitRange units;
  ExpertRange experts;
  bool empty() const { return units.size() <= 0 || experts.size() <= 0; }
  bool operator==(const ExpertSlice&) const = default;
};

// What lies in both; empty (and zero) where nothing does.
ExpertSlice Intersect(const ExpertSlice& a, const ExpertSlice& b);

// Like "units 0-3 of experts 0-63" (first and last, both included).
std::string FormatSlice(const ExpertSlice& slice);

// INVALID_ARGUMENT where a slice is empty or not inside `whole`, or two have something in common;
// begins with `what` and names the slice. At most a few hundred slices: the time is quadratic.
absl::Status CheckSlices(const ExpertSlice& whole, std::span<const ExpertSlice> slices,
                         absl::string_view what);

// The parts of `whole` that lie in none of `slices` (which may reach beyond it, and overlap):
// disjoint, by expert, then by unit. Empty where everything is covered.
std::vector<ExpertSlice> Uncovered(const ExpertSlice& whole, std::span<const ExpertSlice> slices);

// FAILED_PRECONDITION where `asked` is not covered by `held`; names the first part that is not.
absl::Status CheckHolds(std::span<const ExpertSlice> held, const ExpertSlice& asked);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_EXPERT_SLICE_H_

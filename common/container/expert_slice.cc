#include "common/container/expert_slice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

// `from` without `hole`: up to four rectangles, appended to `rest`.
void Subtract(const ExpertSlice& from, const ExpertSlice& hole, std::vector<ExpertSlice>& rest) {
  const ExpertSlice common = Intersect(from, hole);
  if (common.empty()) {
    rest.push_back(from);
    return;
  }
  const ExpertSlice pieces[] = {
      {from.units, {from.experts.begin, common.experts.begin}},
      {{from.units.begin, common.units.begin}, common.experts},
      {{common.units.end, from.units.end}, common.experts},
      {from.units, {common.experts.end, from.experts.end}},
  };
  std::copy_if(std::begin(pieces), std::end(pieces), std::back_inserter(rest),
               [](const ExpertSlice& piece) { return !piece.empty(); });
}

}  // namespace

ExpertSlice Intersect(const ExpertSlice& a, const ExpertSlice& b) {
  const ExpertSlice common{
      {std::max(a.units.begin, b.units.begin), std::min(a.units.end, b.units.end)},
      {std::max(a.experts.begin, b.experts.begin), std::min(a.experts.end, b.experts.end)}};
  return common.empty() ? ExpertSlice() : common;
}

std::string FormatSlice(const ExpertSlice& slice) {
  return absl::StrCat("units ", slice.units.begin, "-", slice.units.end - 1, " of experts ",
                      slice.experts.begin, "-", slice.experts.end - 1);
}

absl::Status CheckSlices(const ExpertSlice& whole, std::span<const ExpertSlice> slices,
                         absl::string_view what) {
  for (size_t i = 0; i < slices.size(); ++i) {
    const ExpertSlice& slice = slices[i];
    if (slice.empty() || Intersect(slice, whole) != slice) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": units [", slice.units.begin, ", ",
                                                     slice.units.end, ") of experts [",
                                                     slice.experts.begin, ", ", slice.experts.end,
                                                     ") are not a part of ", FormatSlice(whole)));
    }
    for (size_t j = 0; j < i; ++j) {
      if (const ExpertSlice common = Intersect(slice, slices[j]); !common.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, ": ", FormatSlice(common), " are given twice"));
      }
    }
  }
  return absl::OkStatus();
}

std::vector<ExpertSlice> Uncovered(const ExpertSlice& whole, std::span<const ExpertSlice> slices) {
  std::vector<ExpertSlice> missing = {whole};
  for (const ExpertSlice& slice : slices) {
    std::vector<ExpertSlice> rest;
    for (const ExpertSlice& piece : missing) {
      Subtract(piece, slice, rest);
    }
    missing = std::move(rest);
  }
  std::sort(missing.begin(), missing.end(), [](const ExpertSlice& a, const ExpertSlice& b) {
    return std::pair(a.experts.begin, a.units.begin) < std::pair(b.experts.begin, b.units.begin);
  });
  return missing;
}

absl::Status CheckHolds(std::span<const ExpertSlice> held, const ExpertSlice& asked) {
  const std::vector<ExpertSlice> missing = Uncovered(asked, held);
  if (missing.empty()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(FormatSlice(missing.front()), " are asked for and not held here"));
}

}  // namespace shoal

#include "expert_node/expert_split.h"

#include <array>
#include <cstddef>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "expert_node/unit_arithmetic.h"

namespace shoal {
namespace {

constexpr std::array kAllSplits = {ExpertSplit::kRows, ExpertSplit::kUnits,
                                   ExpertSplit::kRowsTogether};
constexpr size_t kMostEntries = 64;
constexpr int64_t kMostRows = int64_t{1} << 40;

// Of the possible ones.
std::optional<ExpertSplit> SplitFromName(const UnitLayout& layout, absl::string_view name) {
  for (const ExpertSplit split : PossibleSplits(layout)) {
    if (ExpertSplitName(split) == name) {
      return split;
    }
  }
  return std::nullopt;
}

}  // namespace

absl::string_view ExpertSplitName(ExpertSplit split) {
  constexpr std::array<absl::string_view, kAllSplits.size()> kNames = {"rows", "units",
                                                                       "rows-together"};
  return kNames[static_cast<size_t>(split)];
}

std::vector<ExpertSplit> PossibleSplits(const UnitLayout& layout) {
  std::vector<ExpertSplit> splits(kAllSplits.begin(), kAllSplits.end());
  if (!UnitArithmetic::AppliesRowsTogether(layout)) {
    splits.pop_back();
  }
  return splits;
}

ExpertSplits ExpertSplits::Usual(const UnitLayout& layout, int num_threads) {
  ExpertSplits splits = Always(num_threads > 1 ? ExpertSplit::kUnits : ExpertSplit::kRows);
  if (UnitArithmetic::AppliesRowsTogether(layout)) {
    splits.Add(2, ExpertSplit::kRowsTogether);
  } else if (num_threads > 1) {
    splits.Add(num_threads, ExpertSplit::kRows);
  }
  return splits;
}

absl::StatusOr<ExpertSplits> ExpertSplits::FromJson(const Json& array, const UnitLayout& layout,
                                                    absl::string_view source) {
  if (!array.is_array() || array.empty() || array.size() > kMostEntries) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": splits is not an array of 1 to ", kMostEntries, " entries"));
  }
  ExpertSplits splits({});
  int64_t least = 1;
  for (size_t i = 0; i < array.size(); ++i) {
    JsonFields fields(array[i], absl::StrCat(source, ": splits[", i, "]"));
    fields.AllowOnly({"rows", "split"});
    const int64_t rows = fields.Int("rows", least, i == 0 ? 1 : kMostRows);
    const std::string name = fields.String("split");
    const std::optional<ExpertSplit> split = SplitFromName(layout, name);
    if (fields.status().ok() && !split) {
      fields.Fail("split", "is none of the splits of this codec");
    }
    SHOAL_RETURN_IF_ERROR(fields.status());
    splits.Add(rows, *split);
    least = rows + 1;
  }
  return splits;
}

void ExpertSplits::Add(int64_t num_rows, ExpertSplit split) {
  if (from_.empty() || from_.back().split != split) {
    from_.push_back({num_rows, split});
  }
}

ExpertSplit ExpertSplits::For(int64_t num_rows) const {
  ExpertSplit split = from_.front().split;
  for (const From& from : from_) {
    if (from.num_rows <= num_rows) {
      split = from.split;
    }
  }
  return split;
}

Json ExpertSplits::ToJson() const {
  Json array = Json::array();
  for (const From& from : from_) {
    array.push_back({{"rows", from.num_rows}, {"split", ExpertSplitName(from.split)}});
  }
  return array;
}

std::string ExpertSplits::ToString() const {
  std::string text = absl::StrCat(ExpertSplitName(from_.front().split));
  if (from_.size() > 1) {
    absl::StrAppend(&text, from_[1].num_rows == 2 ? " for 1 row" : " for few rows");
  }
  for (size_t i = 1; i < from_.size(); ++i) {
    absl::StrAppend(&text, ", ", ExpertSplitName(from_[i].split), " from ", from_[i].num_rows);
  }
  return text;
}

}  // namespace shoal

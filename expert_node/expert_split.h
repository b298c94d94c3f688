// How the work of one executor call is shared out among threads. Only its time depends on that.
#ifndef SHOAL_EXPERT_NODE_EXPERT_SPLIT_H_
#define SHOAL_EXPERT_NODE_EXPERT_SPLIT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/unit_layout.h"

namespace shoal {

enum class ExpertSplit {
  kRows,          // a task is one row with all its experts
  kUnits,         // a task is one unit of one expert with one row; the rows take turns
  kRowsTogether,  // a task is one unit of one expert with all rows that chose it
};
// "rows", "units", "rows-together".
absl::string_view ExpertSplitName(ExpertSplit split);

// Those that the layout's codec has: kRowsTogether where UnitArithmetic::AppliesRowsTogether.
std::vector<ExpertSplit> PossibleSplits(const UnitLayout& layout);

// A split for every number of rows.
class ExpertSplits {
 public:
  // From so many rows on, until the next.
  struct From {
    int64_t num_rows = 0;
    ExpertSplit split = ExpertSplit::kRows;
    bool operator==(const From&) const = default;
  };

  // What holds where nothing was measured: rows together where they can be; else a row for each thread
  // where there are as many, and units before that.
  static ExpertSplits Usual(const UnitLayout& layout, int num_threads);
  // `split` for every number of rows.
  static ExpertSplits Always(ExpertSplit split) { return ExpertSplits({{1, split}}); }
  // From an array as ToJson's, in which nothing but what is possible with the layout is accepted.
  // INVALID_ARGUMENT names `source` and the field.
  static absl::StatusOr<ExpertSplits> FromJson(const nlohmann::json& array,
                                               const UnitLayout& layout, absl::string_view source);

  // Adds `split` from num_rows on, which is above all before it; nothing where that is what holds already.
  void Add(int64_t num_rows, ExpertSplit split);

  // num_rows >= 1.
  ExpertSplit For(int64_t num_rows) const;

  // [{"rows": 1, "split": "units"}, ...]
  nlohmann::json ToJson() const;
  // "units for 1 row, rows-together from 2 on".
  std::string ToString() const;

  bool operator==(const ExpertSplits&) const = default;

 private:
  explicit ExpertSplits(std::vector<From> from) : from_(std::move(from)) {}
  std::vector<From> from_;  // increasing, the first from 1
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_SPLIT_H_

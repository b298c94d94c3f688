// What benchmarks share.
#ifndef SHOAL_TESTS_BENCH_BENCH_SUPPORT_H_
#define SHOAL_TESTS_BENCH_BENCH_SUPPORT_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace shoal::testing {

// The value. An error is printed, and ends the program: a benchmark has nobody else to tell.
template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
    std::abort();
  }
  return *std::move(value);
}

// Of one value or more; of an even number the upper of the two in the middle.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_BENCH_BENCH_SUPPORT_H_

#include "common/metrics/histogram.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace shoal {

Histogram::Histogram(std::vector<absl::Duration> bounds) {
  counts_.counts.resize(bounds.size() + 1);
  counts_.bounds = std::move(bounds);
}

void Histogram::Observe(absl::Duration time) {
  const MutexLock lock(&mutex_);
  const auto bound = std::lower_bound(counts_.bounds.begin(), counts_.bounds.end(), time);
  ++counts_.counts[static_cast<size_t>(bound - counts_.bounds.begin())];
  counts_.sum += time;
}

HistogramCounts Histogram::Counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

std::vector<absl::Duration> TokenTimeBounds() {
  std::vector<absl::Duration> bounds;
  bounds.reserve(16);
  for (absl::Duration decade = absl::Milliseconds(1); decade < absl::Seconds(100); decade *= 10) {
    for (const int step : {1, 2, 5}) {
      bounds.push_back(step * decade);
    }
  }
  bounds.push_back(absl::Seconds(100));
  return bounds;
}

}  // namespace shoal

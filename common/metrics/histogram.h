// Counts of observed times in buckets, as Prometheus's histograms have them.
#ifndef SHOAL_COMMON_METRICS_HISTOGRAM_H_
#define SHOAL_COMMON_METRICS_HISTOGRAM_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"

namespace shoal {

// What a histogram held at one moment.
struct HistogramCounts {
  std::vector<absl::Duration> bounds;  // upper, inclusive, growing
  std::vector<int64_t> counts;  // one a bound and a last one for what is above all; not cumulative
  absl::Duration sum;
};

// Thread-safe.
class Histogram {
 public:
  // `bounds` grow strictly.
  explicit Histogram(std::vector<absl::Duration> bounds);

  void Observe(absl::Duration time);
  HistogramCounts Counts() const;

 private:
  mutable Mutex mutex_;
  HistogramCounts counts_ ABSL_GUARDED_BY(mutex_);
};

// 1, 2 and 5 times each power of ten from 1 ms to 100 s: a token of a small model in memory takes
// milliseconds, one of a large model on a slow disk many seconds.
std::vector<absl::Duration> TokenTimeBounds();

}  // namespace shoal

#endif  // SHOAL_COMMON_METRICS_HISTOGRAM_H_

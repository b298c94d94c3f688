#include "common/sync/stealing_ranges.h"

#include <cstddef>

namespace shoal {

StealingRanges::StealingRanges(int64_t num_tasks, int num_workers)
    : ranges_(static_cast<size_t>(num_workers)), left_(num_tasks) {
  for (int64_t w = 0; w < num_workers; ++w) {
    Range& range = ranges_[static_cast<size_t>(w)];
    MutexLock lock(&range.mutex);
    range.begin = num_tasks * w / num_workers;
    range.end = num_tasks * (w + 1) / num_workers;
  }
}

int64_t StealingRanges::Range::TakeFirst() {
  MutexLock lock(&mutex);
  return begin < end ? begin++ : -1;
}

int64_t StealingRanges::Range::size() {
  MutexLock lock(&mutex);
  return end - begin;
}

std::pair<int64_t, int64_t> StealingRanges::Range::CutHalf() {
  MutexLock lock(&mutex);
  const std::pair<int64_t, int64_t> half(begin + (end - begin) / 2, end);
  end = half.first;
  return half;
}

bool StealingRanges::Steal(Range& own) {
  for (;;) {
    Range* fullest = nullptr;
    int64_t most = 0;
    for (Range& range : ranges_) {
      if (const int64_t size = range.size(); size > most) {
        fullest = &range;
        most = size;
      }
    }
    if (fullest == nullptr) {
      return false;
    }
    const auto [begin, end] = fullest->CutHalf();
    if (begin < end) {
      MutexLock lock(&own.mutex);
      own.begin = begin;
      own.end = end;
      return true;
    }
  }
}

int64_t StealingRanges::Take(int worker) {
  Range& own = ranges_[static_cast<size_t>(worker)];
  int64_t task = own.TakeFirst();
  // What was stolen may be stolen back before its first task is taken.
  while (task < 0 && Steal(own)) {
    task = own.TakeFirst();
  }
  if (task >= 0) {
    left_.fetch_sub(1);
  }
  return task;
}

}  // namespace shoal

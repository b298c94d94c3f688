// Keeps a log from being filled by what happens again and again.
#ifndef SHOAL_COMMON_LOG_LOG_LIMIT_H_
#define SHOAL_COMMON_LOG_LOG_LIMIT_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/log/log_line.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe.
class LogLimit {
 public:
  // `write` gets at most `lines_a_minute` (1 or more) lines, one at a time, and then how many were left
  // out. `clock` outlives the object.
  LogLimit(LogWriter write, int lines_a_minute, const Clock& clock);

  void Add(const LogLine& line);

 private:
  const LogWriter write_;
  const int lines_a_minute_;
  const Clock& clock_;
  Mutex mutex_;
  absl::Time minute_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_LOG_LOG_LIMIT_H_

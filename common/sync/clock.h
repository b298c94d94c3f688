// Time as something passed in, so that tests can move it.
#ifndef SHOAL_COMMON_SYNC_CLOCK_H_
#define SHOAL_COMMON_SYNC_CLOCK_H_

#include "absl/time/time.h"

namespace shoal {

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic: never goes back, not related to the calendar.
  virtual absl::Time Now() const = 0;

  // The machine's monotonic clock; lives as long as the process.
  static const Clock& Real();
};

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_CLOCK_H_

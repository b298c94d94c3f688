#include "expert_node/drill/read_throttle.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace shoal {

ReadThrottle::ReadThrottle(uint64_t bytes_per_second, const Clock& clock)
    : ReadThrottle(bytes_per_second, clock, [](absl::Duration time) { absl::SleepFor(time); }) {}

ReadThrottle::ReadThrottle(uint64_t bytes_per_second, const Clock& clock, Sleep sleep)
    : bytes_per_second_(bytes_per_second), clock_(clock), sleep_(std::move(sleep)) {}

absl::Time ReadThrottle::Reserve(uint64_t bytes) {
  const absl::Time now = clock_.Now();
  MutexLock lock(&mutex_);
  free_at_ = std::max(free_at_, now) +
             absl::Seconds(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  return free_at_;
}

void ReadThrottle::WaitUntil(absl::Time time) const {
  if (const absl::Duration left = time - clock_.Now(); left > absl::ZeroDuration()) {
    sleep_(left);
  }
}

absl::Status ThrottledReader::Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                                   ReadCounts& counts) {
  const absl::Time done = throttle_.Reserve(out.size());
  absl::Status status = reader_->Read(layer, offset_bytes, out, counts);
  throttle_.WaitUntil(done);
  return status;
}

}  // namespace shoal

#include "common/sync/clock.h"

#include <chrono>

namespace shoal {
namespace {

class RealClock final : public Clock {
 public:
  absl::Time Now() const override {
    const auto since_boot = std::chrono::steady_clock::now().time_since_epoch();
    return absl::UnixEpoch() + absl::FromChrono(since_boot);
  }
};

}  // namespace

const Clock& Clock::Real() {
  static const RealClock real;
  return real;
}

}  // namespace shoal

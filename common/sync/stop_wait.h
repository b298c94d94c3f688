// Waiting that can be stopped.
#ifndef SHOAL_COMMON_SYNC_STOP_WAIT_H_
#define SHOAL_COMMON_SYNC_STOP_WAIT_H_

#include <stop_token>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace shoal {

// Returns after `time`; with CANCELLED as soon as `stop` comes.
absl::Status WaitUnlessStopped(absl::Duration time, const std::stop_token& stop);

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_STOP_WAIT_H_

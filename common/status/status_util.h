// Small helpers for absl::Status: context for messages and errno translation.
#ifndef SHOAL_COMMON_STATUS_STATUS_UTIL_H_
#define SHOAL_COMMON_STATUS_STATUS_UTIL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Returns `status` with "`context`: " put before its message; the code is kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

// Status for a failed system call: `what` names the call's object ("open /m/x/trunk.bin"),
// `error_number` is errno. ENOSPC, EDQUOT, EFBIG and ENOMEM become RESOURCE_EXHAUSTED, ENOENT
// NOT_FOUND, EACCES/EPERM/EROFS PERMISSION_DENIED, EEXIST ALREADY_EXISTS, everything else
// UNAVAILABLE. The message ends with the system's own words.
absl::Status ErrnoToStatus(int error_number, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_COMMON_STATUS_STATUS_UTIL_H_

// What a program tells the service manager that started it (systemd's sd_notify protocol).
#ifndef SHOAL_COMMON_SYNC_SERVICE_MANAGER_H_
#define SHOAL_COMMON_SYNC_SERVICE_MANAGER_H_

#include "absl/strings/string_view.h"

namespace shoal {

// Sends assignments, one a line, such as "READY=1" or "STOPPING=1", to the socket that the environment
// names in NOTIFY_SOCKET. Does nothing where there is none; a manager that cannot be told is no reason
// to end, so errors are dropped. Thread-safe as long as nobody changes the environment.
void TellServiceManager(absl::string_view assignments);

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_SERVICE_MANAGER_H_

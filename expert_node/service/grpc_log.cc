#include "expert_node/service/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdio>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/sync/mutex.h"

namespace shoal {
namespace {

// gRPC's hook is a function without anything to hand it, so that what it writes to is the process's.
struct Tap {
  Mutex mutex;
  RefusalLog* log ABSL_GUARDED_BY(mutex) = nullptr;
};
Tap& TheTap() {
  static Tap& tap = *new Tap;  // never destroyed: gRPC's threads outlive main
  return tap;
}

// "Handshake failed with fatal error SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong version
// number." -> "wrong version number."
absl::string_view ReasonOf(absl::string_view message) {
  const size_t colon = message.rfind("::");
  return colon == absl::string_view::npos ? message : message.substr(colon + 2);
}

void OnMessage(gpr_log_func_args* message) {
  const absl::string_view text = message->message;
  if (absl::StartsWith(text, "No match found for server name")) {
    return;  // members are known by the pool's names, not by the address that is dialled
  }
  if (absl::StartsWith(text, "Handshake failed")) {
    Tap& tap = TheTap();
    MutexLock lock(&tap.mutex);
    if (tap.log != nullptr) {
      tap.log->Add(absl::StrCat("a connection: no TLS that is accepted: ", ReasonOf(text)));
    }
    return;
  }
  std::fprintf(stderr, "gRPC: %s: %s\n", gpr_log_severity_string(message->severity),
               message->message);
}

}  // namespace

GrpcLogTap::GrpcLogTap(RefusalLog& log) {
  Tap& tap = TheTap();
  MutexLock lock(&tap.mutex);
  if (tap.log == nullptr) {
    tap.log = &log;
    mine_ = true;
    gpr_set_log_function(OnMessage);
  }
}

GrpcLogTap::~GrpcLogTap() {
  Tap& tap = TheTap();
  MutexLock lock(&tap.mutex);
  if (mine_) {
    tap.log = nullptr;
    gpr_set_log_function(nullptr);
  }
}

}  // namespace shoal

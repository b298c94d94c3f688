#include "expert_node/service/grpc_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <string>

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

// Gives a line to the log that there is: of a connection or call that was refused, or of anything else.
// False where there is none.
bool Tell(absl::string_view line, bool refused) {
  Tap& tap = TheTap();
  MutexLock lock(&tap.mutex);
  if (tap.log == nullptr) {
    return false;
  }
  if (refused) {
    tap.log->Add(line);
  } else {
    tap.log->Note(line);
  }
  return true;
}

void OnGrpcMessage(gpr_log_func_args* message) {
  const absl::string_view text = message->message;
  if (absl::StartsWith(text, "No match found for server name") ||
      absl::StrContains(text, "Listener stopped serving")) {
    // Members are known by the pool's names, not by the address that is dialled; and a server that ends
    // leaves handshakes alone.
    return;
  }
  bool told = false;
  if (absl::StartsWith(text, "Handshake failed")) {
    told = Tell(absl::StrCat("a connection: no TLS that is accepted: ", ReasonOf(text)), true);
  } else if (absl::StrContains(text, "Handshake timed out")) {
    told = Tell("a connection: the TLS handshake was not done in time", true);
  } else {
    told = Tell(absl::StrCat("gRPC: ", text), false);
  }
  if (!told) {
    std::fprintf(stderr, "gRPC: %s: %s\n", gpr_log_severity_string(message->severity),
                 message->message);
  }
}

// Protocol Buffers' lines are about messages of peers, a text that is not UTF-8 for example.
void OnProtobufMessage(google::protobuf::LogLevel level, const char* file, int line,
                       const std::string& message) {
  // A fatal one is the last that is heard of the process: no limit may keep it back.
  if (level == google::protobuf::LOGLEVEL_FATAL ||
      !Tell(absl::StrCat("a message: ", message), true)) {
    std::fprintf(stderr, "protobuf: %s:%d: %s\n", file, line, message.c_str());
  }
}

}  // namespace

GrpcLogTap::GrpcLogTap(RefusalLog& log) {
  Tap& tap = TheTap();
  MutexLock lock(&tap.mutex);
  if (tap.log == nullptr) {
    tap.log = &log;
    mine_ = true;
    gpr_set_log_function(OnGrpcMessage);
    protobuf_handler_ = google::protobuf::SetLogHandler(OnProtobufMessage);
  }
}

GrpcLogTap::~GrpcLogTap() {
  Tap& tap = TheTap();
  MutexLock lock(&tap.mutex);
  if (mine_) {
    tap.log = nullptr;
    gpr_set_log_function(nullptr);
    google::protobuf::SetLogHandler(protobuf_handler_);
  }
}

}  // namespace shoal

// Lines that a program writes to standard error for its people: what happened, and to which call of a
// client. A call has one number, drawn by the coordinator that takes it; nodes get it with each layer,
// so that the logs of all machines name it alike.
//
// As text, or, where the environment has SHOAL_LOG=json, as one object a line (docs/operations.md):
//   shoal: call 00c0ffee00c0ffee: DATA_LOSS: ...
//   {"time":"2026-12-02T16:00:00.123Z","program":"shoal","message":"...","call":"00c0ffee00c0ffee","code":"DATA_LOSS"}
#ifndef SHOAL_COMMON_LOG_LOG_LINE_H_
#define SHOAL_COMMON_LOG_LOG_LINE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace shoal {

// Never a text of a client. The message is borrowed.
struct LogLine {
  absl::string_view message;
  uint64_t call = 0;                              // 0: it belongs to none
  absl::StatusCode code = absl::StatusCode::kOk;  // of what went wrong
};

// Gets lines from any thread.
using LogWriter = std::function<void(const LogLine& line)>;

enum class LogFormat { kText, kJson };

// What SHOAL_LOG says: "json", or text for anything else and without it.
LogFormat LogFormatOfEnvironment();

// A new call's number, from the system's randomness; not 0.
uint64_t NewCallNumber();
// 16 hexadecimal digits, as logs and clients have it.
std::string CallName(uint64_t call);

// The line, without its end. Bytes that are not UTF-8 come out as U+FFFD in JSON.
std::string FormatLogLine(absl::string_view program, const LogLine& line, LogFormat format,
                          absl::Time now);

// Writes it to standard error, at once. Thread-safe: lines do not mix.
void WriteLogLine(absl::string_view program, const LogLine& line);

}  // namespace shoal

#endif  // SHOAL_COMMON_LOG_LOG_LINE_H_

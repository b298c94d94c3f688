#include "coordinator/cli/console.h"

#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/log/log_line.h"

namespace shoal {

bool Console::out_is_terminal() const { return ::isatty(STDOUT_FILENO) == 1; }

bool Console::error_is_terminal() const { return ::isatty(STDERR_FILENO) == 1; }

void Console::Print(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Console::PrintJson(const Json& value) {
  Print(absl::StrCat(value.dump(-1, ' ', false, Json::error_handler_t::replace), "\n"));
}

void Console::Note(absl::string_view line) {
  if (LogFormatOfEnvironment() == LogFormat::kText) {
    NoteRaw(absl::StrCat(line, "\n"));
    return;
  }
  absl::ConsumePrefix(&line, "shoal: ");
  WriteLogLine("shoal", {.message = line});
}

void Console::NoteRaw(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

absl::Status Console::CheckOutput() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return absl::UnavailableError("standard output could not be written; the result is incomplete");
  }
  return absl::OkStatus();
}

}  // namespace shoal

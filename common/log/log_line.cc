#include "common/log/log_line.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace shoal {

LogFormat LogFormatOfEnvironment() {
  const char* const format = std::getenv("SHOAL_LOG");
  return format != nullptr && absl::string_view(format) == "json" ? LogFormat::kJson
                                                                  : LogFormat::kText;
}

uint64_t NewCallNumber() {
  std::random_device random;
  uint64_t number = 0;
  while (number == 0) {
    number = uint64_t{random()} << 32 | random();
  }
  return number;
}

std::string CallName(uint64_t call) { return absl::StrCat(absl::Hex(call, absl::kZeroPad16)); }

std::string FormatLogLine(absl::string_view program, const LogLine& line, LogFormat format,
                          absl::Time now) {
  const std::string code =
      line.code == absl::StatusCode::kOk ? "" : absl::StatusCodeToString(line.code);
  if (format == LogFormat::kText) {
    return absl::StrCat(program, ": ",
                        line.call == 0 ? "" : absl::StrCat("call ", CallName(line.call), ": "),
                        code, code.empty() ? "" : ": ", line.message);
  }
  nlohmann::ordered_json json = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
      {"program", std::string(program)},
      {"message", std::string(line.message)}};
  if (line.call != 0) {
    json["call"] = CallName(line.call);
  }
  if (!code.empty()) {
    json["code"] = code;
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void WriteLogLine(absl::string_view program, const LogLine& line) {
  const std::string text =
      absl::StrCat(FormatLogLine(program, line, LogFormatOfEnvironment(), absl::Now()), "\n");
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace shoal

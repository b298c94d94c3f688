#include "expert_node/program/node_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/log/log_line.h"

namespace shoal {

void Note(absl::string_view text) { WriteLogLine(kProgram, {.message = text}); }

void PrintLine(bool json, const nlohmann::json& object, const std::string& text) {
  std::puts(json ? object.dump().c_str() : text.c_str());
  std::fflush(stdout);
}

NodeExit Report(bool json, const absl::Status& status, NodeExit code) {
  const std::string message(status.message());
  Note(message);
  if (json) {
    PrintLine(json,
              {{"error",
                {{"code", absl::StatusCodeToString(status.code())},
                 {"message", message},
                 {"exit_code", static_cast<int>(code)}}}},
              "");
  }
  return code;
}

NodeExit Report(bool json, const absl::Status& status) {
  return Report(
      json, status,
      status.code() == absl::StatusCode::kDataLoss ? NodeExit::kDataDamaged : NodeExit::kFailure);
}

}  // namespace shoal

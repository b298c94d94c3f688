// What shoal-node says: lines for people on standard error, lines for who started it on standard
// output, and the code that it ends with.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

inline constexpr char kProgram[] = "shoal-node";

// How the program ends; docs/operations.md repeats them.
enum class NodeExit : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kBudgetBelowFloor = 3,
  kDataDamaged = 4,
};

// One line on standard error.
void Note(absl::string_view text);

// One line on standard output, at once, because who started the node waits for it: `object` where
// `json`, else `text`.
void PrintLine(bool json, const nlohmann::json& object, const std::string& text);

// Says an error on standard error, and with `json` as an object on standard output too. Returns
// `code`, or the one that belongs to the status.
NodeExit Report(bool json, const absl::Status& status, NodeExit code);
NodeExit Report(bool json, const absl::Status& status);

}  // namespace shoal

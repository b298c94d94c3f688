// Where a command's results and remarks go.
#ifndef SHOAL_COORDINATOR_CLI_CONSOLE_H_
#define SHOAL_COORDINATOR_CLI_CONSOLE_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Keeps fields in the order in which they were added.
using Json = nlohmann::ordered_json;

// Results go to standard output, everything else to standard error. One thread.
class Console {
 public:
  explicit Console(bool json) : json_(json) {}

  // Whether results are wanted as JSON.
  bool json() const { return json_; }
  bool out_is_terminal() const;
  bool error_is_terminal() const;

  // To standard output, at once.
  void Print(absl::string_view text);
  // One line; bytes in it that are not UTF-8 come out as U+FFFD.
  void PrintJson(const Json& value);
  // A line to standard error; of the log, where that is JSON (common/log/log_line.h).
  void Note(absl::string_view line);
  // To standard error as it is, at once.
  void NoteRaw(absl::string_view text);

  // Whether everything printed so far reached standard output: a full disk or a closed pipe must
  // not look like success.
  absl::Status CheckOutput();

 private:
  bool json_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_CONSOLE_H_

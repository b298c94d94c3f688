// Lines of a terminal or a pipe, as they come.
#ifndef SHOAL_COORDINATOR_CLI_LINE_READER_H_
#define SHOAL_COORDINATOR_CLI_LINE_READER_H_

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"

namespace shoal {

// Not std::getline, which cannot be woken by Ctrl-C and takes lines of any length.
class LineReader {
 public:
  // `fd` stays the caller's and outlives the reader.
  explicit LineReader(int fd) : fd_(fd) {}

  // The next line without its newline; nothing at the end of the input. CANCELLED where `stop` came
  // while waiting; RESOURCE_EXHAUSTED for a line of more than 1 MiB.
  absl::StatusOr<std::optional<std::string>> Next(const std::stop_token& stop);

 private:
  // False at the end of the input.
  absl::StatusOr<bool> Fill(const std::stop_token& stop);

  int fd_;
  std::string buffer_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_LINE_READER_H_

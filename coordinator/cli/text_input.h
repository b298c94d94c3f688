// The text a command works on: an argument, a file, standard input, or token ids.
#ifndef SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_
#define SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/cli/command_line.h"

namespace shoal {

struct TextInput {
  std::optional<std::string> argument;
  std::optional<std::string> file;
  std::optional<std::vector<int32_t>> ids;
  std::string argument_name;

  // Declares the argument `name` and --file, and with `with_ids` also --ids.
  void Add(FlagSet& flags, const std::string& name, bool with_ids);

  // The text. Standard input where the argument is "-", or where nothing is given and standard
  // input is not a terminal. UsageError where two sources or none are given.
  // REQUIRES: no ids are given.
  absl::StatusOr<std::string> ReadText() const;
  // The ids given, or those of the text, in which nothing is special. Fails as ReadText does.
  absl::StatusOr<std::vector<int32_t>> ReadIds(const Tokenizer& tokenizer) const;
  // UsageError where more than one source is given: to be called before a model is opened.
  absl::Status CheckOneSource() const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_

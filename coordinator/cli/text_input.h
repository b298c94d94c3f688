// The text a command works on: an argument, a file, standard input, or token ids.
#ifndef SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_
#define SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/cli/command_line.h"

namespace shoal {

// A text is held in memory beside the model, so it may not be of any size.
inline constexpr uint64_t kMaxTextBytes = uint64_t{64} << 20;

struct TextInput {
  std::optional<std::string> argument;
  std::optional<std::string> file;
  std::optional<std::vector<int32_t>> ids;
  std::string argument_name;
  bool takes_ids = false;

  // Declares the argument `name` and --file, and with `with_ids` also --ids.
  void Add(FlagSet& flags, const std::string& name, bool with_ids);

  // The text. Standard input where the argument is "-", or where nothing is given and standard
  // input is not a terminal. UsageError where two sources or none are given, RESOURCE_EXHAUSTED
  // where the text is longer than kMaxTextBytes.
  // REQUIRES: no ids are given.
  absl::StatusOr<std::string> ReadText() const;
  // The ids given, or those of the text, in which nothing is special; the first `max_tokens` of
  // them where that is given. Then a text of any length is accepted: it is read no further than
  // needed. A file or standard input is held in pieces only. Fails as ReadText does.
  absl::StatusOr<std::vector<int32_t>> ReadIds(const Tokenizer& tokenizer,
                                               std::optional<int64_t> max_tokens) const;
  // UsageError where more than one source is given: to be called before a model is opened.
  absl::Status CheckOneSource() const;
};

// How many bytes from the front of `text` can be tokenized alone, because SplitText cuts behind
// them whatever follows: the first 400,000 characters. 0 where it holds fewer.
size_t SafeBorder(absl::string_view text);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_TEXT_INPUT_H_

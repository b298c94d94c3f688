#include "coordinator/cli/text_input.h"

#include <errno.h>
#include <unistd.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

absl::StatusOr<std::string> ReadStandardInput() {
  std::string text;
  std::array<char, 65536> chunk;
  while (true) {
    const ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (count == 0) {
      return text;
    }
    if (count < 0) {
      if (errno == EINTR) {
        continue;
      }
      return ErrnoToStatus(errno, "read standard input");
    }
    text.append(chunk.data(), static_cast<size_t>(count));
    if (text.size() > kMaxTextBytes) {
      return absl::ResourceExhaustedError("standard input has more than 1 GiB of text");
    }
  }
}

}  // namespace

void TextInput::Add(FlagSet& flags, const std::string& name, bool with_ids) {
  argument_name = name;
  flags.OptionalArgument(name, &argument, "The text; - or nothing: what standard input holds");
  flags.Heading("Text");
  flags.Text("--file", "FILE", &file, "Read the text from a file");
  if (with_ids) {
    flags.Ids("--ids", &ids, "Token ids in place of a text");
  }
}

absl::Status TextInput::CheckOneSource() const {
  const int sources =
      (argument.has_value() ? 1 : 0) + (file.has_value() ? 1 : 0) + (ids.has_value() ? 1 : 0);
  if (sources > 1) {
    return UsageError(absl::StrCat("give only one of ", argument_name, ", --file and --ids"));
  }
  if (sources == 0 && ::isatty(STDIN_FILENO) == 1) {
    return UsageError(absl::StrCat("no text; give ", argument_name,
                                   " as an argument, --file FILE, or a text on standard input"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextInput::ReadText() const {
  SHOAL_RETURN_IF_ERROR(CheckOneSource());
  if (file.has_value()) {
    return ReadTextFile(*file, kMaxTextBytes);
  }
  if (argument.has_value() && *argument != "-") {
    return *argument;
  }
  return ReadStandardInput();
}

absl::StatusOr<std::vector<int32_t>> TextInput::ReadIds(const Tokenizer& tokenizer) const {
  SHOAL_RETURN_IF_ERROR(CheckOneSource());
  if (ids.has_value()) {
    return *ids;
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadText());
  return tokenizer.EncodeText(text);
}

}  // namespace shoal

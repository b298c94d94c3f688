#include "coordinator/cli/text_input.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/io/byte_size.h"
#include "common/io/file.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/tokenizer/utf8.h"

namespace shoal {
namespace {

constexpr size_t kReadBytes = size_t{256} << 10;
// Of SplitText; in a text of many pieces each is tokenized as it would be within the whole.
constexpr int64_t kBlockCharacters = 400'000;

// A file or standard input, read from front to back.
class TextSource {
 public:
  // Standard input where there is no `file`.
  static absl::StatusOr<TextSource> Open(const std::optional<std::string>& file) {
    TextSource source;
    if (file.has_value()) {
      source.name_ = *file;
      SHOAL_ASSIGN_OR_RETURN(source.file_, OpenForRead(*file));
      source.fd_ = source.file_.get();
      SHOAL_ASSIGN_OR_RETURN(source.known_bytes_, FileBytes(source.file_, *file));
    }
    return source;
  }

  uint64_t known_bytes() const { return known_bytes_; }

  // Appends what comes next; false at the end.
  absl::StatusOr<bool> Read(std::string& text) const {
    const size_t held = text.size();
    text.resize(held + kReadBytes);
    ssize_t count = 0;
    do {
      count = ::read(fd_, text.data() + held, kReadBytes);
    } while (count < 0 && errno == EINTR);
    text.resize(held + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return count < 0 ? absl::StatusOr<bool>(ErrnoToStatus(errno, absl::StrCat("read ", name_)))
                     : absl::StatusOr<bool>(count > 0);
  }

  absl::Status TooLong(absl::string_view fix) const {
    return absl::ResourceExhaustedError(
        absl::StrCat(name_, " has more than ", FormatByteSize(kMaxTextBytes), " of text; ", fix));
  }

 private:
  TextSource() = default;

  std::string name_ = "standard input";
  UniqueFd file_;
  int fd_ = STDIN_FILENO;
  uint64_t known_bytes_ = 0;  // of standard input nothing is known
};

}  // namespace

size_t SafeBorder(absl::string_view text) {
  int64_t characters = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    at += step.length;
    characters += step.kind == Utf8Step::Kind::kCharacter ? 1 : 0;
    if (characters == kBlockCharacters) {
      return at;
    }
  }
  return 0;
}

void TextInput::Add(FlagSet& flags, const std::string& name, bool with_ids) {
  argument_name = name;
  takes_ids = with_ids;
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
    return UsageError(absl::StrCat("give only one of ", argument_name,
                                   takes_ids ? ", --file and --ids" : " and --file"));
  }
  if (sources == 0 && ::isatty(STDIN_FILENO) == 1) {
    return UsageError(
        absl::StrCat("no text; give ", argument_name, " as an argument, --file FILE, ",
                     takes_ids ? "--ids N,N,..., " : "", "or a text on standard input"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextInput::ReadText() const {
  SHOAL_RETURN_IF_ERROR(CheckOneSource());
  if (argument.has_value() && *argument != "-") {
    return *argument;
  }
  SHOAL_ASSIGN_OR_RETURN(const TextSource source, TextSource::Open(file));
  std::string text;
  for (bool more = true; more;) {
    SHOAL_ASSIGN_OR_RETURN(more, source.Read(text));
    if (std::max<uint64_t>(text.size(), source.known_bytes()) > kMaxTextBytes) {
      return source.TooLong("split it");
    }
  }
  return text;
}

absl::StatusOr<std::vector<int32_t>> TextInput::ReadIds(const Tokenizer& tokenizer,
                                                        std::optional<int64_t> max_tokens) const {
  SHOAL_RETURN_IF_ERROR(CheckOneSource());
  const int64_t most = max_tokens.value_or(std::numeric_limits<int64_t>::max());
  std::vector<int32_t> all;
  if (ids.has_value()) {
    all = *ids;
  } else if (argument.has_value() && *argument != "-") {
    all = tokenizer.EncodeText(*argument);
  } else {
    SHOAL_ASSIGN_OR_RETURN(const TextSource source, TextSource::Open(file));
    std::string text;      // read and not tokenized yet
    uint64_t encoded = 0;  // bytes
    for (bool more = true; more && std::ssize(all) < most;) {
      SHOAL_ASSIGN_OR_RETURN(more, source.Read(text));
      if (text.size() > kMaxTextBytes ||
          (!max_tokens.has_value() &&
           std::max(encoded + text.size(), source.known_bytes()) > kMaxTextBytes)) {
        return source.TooLong("take its first tokens with --limit N, or split it");
      }
      const size_t border = more ? SafeBorder(text) : text.size();
      const std::vector<int32_t> piece =
          tokenizer.EncodeText(absl::string_view(text).substr(0, border));
      all.insert(all.end(), piece.begin(), piece.end());
      encoded += border;
      text.erase(0, border);
    }
  }
  all.resize(static_cast<size_t>(std::min(most, std::ssize(all))));
  return all;
}

}  // namespace shoal

#include "coordinator/cli/generate_flags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace shoal {

void GenerateFlags::Add(FlagSet& flags) {
  flags.Heading("Generation");
  flags.Integer("--max-tokens", &options.max_tokens, {0, 1'000'000'000},
                absl::StrCat("Tokens at most (default ", options.max_tokens, ")"));
  flags.Texts("--stop", "TEXT", &options.stop,
              "End at this text, which is not printed; may be given\nseveral times");
  flags.Switch("--ignore-eos", &options.ignore_end_of_text,
               "Go on after the model's own end of the text");
  flags.Real("--temperature", &options.sampling.temperature,
             "0: always the likeliest token (default); 1: as the model\nsays; more: wilder");
  flags.Integer("--top-k", &options.sampling.top_k, {0}, "Only the N likeliest tokens (0: all)");
  flags.Real("--top-p", &options.sampling.top_p,
             "Only the likeliest tokens that together have this\nprobability (1: all)");
  flags.Real("--min-p", &options.sampling.min_p,
             "Only tokens at least X times as likely as the likeliest");
  flags.Real("--repetition-penalty", &options.sampling.repetition_penalty,
             "Above 1: tokens that occurred before become less likely");
  flags.Integer("--seed", &seed, {0}, "Another seed draws other tokens (default 0)");
}

absl::StatusOr<GenerateOptions> GenerateFlags::Checked() const {
  GenerateOptions checked = options;
  checked.sampling.seed = static_cast<uint64_t>(seed);
  if (const absl::Status status = ValidateSampling(checked.sampling); !status.ok()) {
    // The library names the field top_p, the user wrote --top-p.
    const std::string message(status.message());
    const size_t end = message.find(' ');
    return UsageError(absl::StrCat("--", absl::StrReplaceAll(message.substr(0, end), {{"_", "-"}}),
                                   message.substr(end)));
  }
  return checked;
}

bool TextStream::OnToken(const TokenEvent& event) {
  if (!console_.json()) {
    console_.Print(event.text);
    printed_bytes_ += event.text.size();
  }
  return true;
}

void TextStream::Finish(absl::string_view text) {
  if (!console_.json()) {
    console_.Print(absl::StrCat(text.substr(printed_bytes_), "\n"));
  }
}

}  // namespace shoal

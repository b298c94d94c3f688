#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/container.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/text_input.h"

namespace shoal {
namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory));
  return Tokenizer::Load(directory, container->config().vocab_size);
}

class TokenizeCommand final : public Command {
 public:
  std::string name() const override { return "tokenize"; }
  std::string summary() const override { return "Print the token ids of a text"; }
  std::string examples() const override {
    return "  shoal tokenize ~/models/kimi-linear \"Once upon a time\"\n"
           "  shoal tokenize ~/models/kimi-linear --special \"<|im_user|>user<|im_middle|>\"\n"
           "  shoal tokenize ~/models/kimi-linear --file story.txt --json";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Container made by `shoal convert`");
    input_.Add(flags, "TEXT", /*with_ids=*/false);
    flags.Switch("--special", &special_,
                 "Names of special tokens in the text stand for those tokens");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_RETURN_IF_ERROR(input_.CheckOneSource());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(directory_));
    SHOAL_ASSIGN_OR_RETURN(const std::string text, input_.ReadText());
    const std::vector<int32_t> ids =
        special_ ? tokenizer->EncodeWithSpecial(text) : tokenizer->EncodeText(text);
    if (console.json()) {
      console.PrintJson({{"num_tokens", ids.size()}, {"ids", ids}});
    } else {
      console.Print(absl::StrCat(absl::StrJoin(ids, ","), "\n"));
    }
    return ExitCode::kOk;
  }

 private:
  std::string directory_;
  TextInput input_;
  bool special_ = false;
};

class DetokenizeCommand final : public Command {
 public:
  std::string name() const override { return "detokenize"; }
  std::string summary() const override { return "Print the text of token ids"; }
  std::string examples() const override {
    return "  shoal detokenize ~/models/kimi-linear --ids 17,4,92\n"
           "The bytes are printed as they are; with --json what is not UTF-8 becomes U+FFFD.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Container made by `shoal convert`");
    flags.Ids("--ids", &ids_, "The token ids");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (!ids_.has_value()) {
      return UsageError("--ids is missing; give token ids like --ids 17,4,92");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(directory_));
    SHOAL_ASSIGN_OR_RETURN(const std::string text, tokenizer->Decode(*ids_));
    if (console.json()) {
      console.PrintJson({{"text", text}});
    } else {
      console.Print(console.out_is_terminal() ? absl::StrCat(text, "\n") : text);
    }
    return ExitCode::kOk;
  }

 private:
  std::string directory_;
  std::optional<std::vector<int32_t>> ids_;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }

std::unique_ptr<Command> MakeDetokenizeCommand() { return std::make_unique<DetokenizeCommand>(); }

}  // namespace shoal

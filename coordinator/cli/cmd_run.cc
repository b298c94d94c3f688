#include <functional>
#include <iterator>
#include <optional>
#include <stop_token>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/generate_flags.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/progress.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/text_input.h"

namespace shoal {
namespace {

class RunCommand final : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string summary() const override { return "Continue a text, or answer one message"; }
  std::string examples() const override {
    return "  shoal run ~/models/kimi-linear \"Once upon a time\"\n"
           "  shoal run ~/models/kimi-linear --chat \"What is the capital of France?\"\n"
           "  shoal run ~/models/kimi-linear --file story.txt --temperature 0.8 --top-p 0.95\n"
           "  echo Hello | shoal run ~/models/kimi-linear --json\n"
           "The text goes to standard output, the statistics to standard error.";
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    input_.Add(flags, "PROMPT", /*with_ids=*/true);
    flags.Switch("--chat", &chat_, "Give the text to the model as a user's message");
    flags.Switch("--print-ids", &print_ids_,
                 "Print the generated token ids after the text\n(--json always has them)");
    generate_flags_.Add(flags);
    model_flags_.AddOptions(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const GenerateOptions options, generate_flags_.Checked());
    SHOAL_RETURN_IF_ERROR(input_.CheckOneSource());
    if (chat_ && input_.ids.has_value()) {
      return UsageError("--chat wraps a text; with --ids give the ids of the whole conversation");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           OpenModel(model_flags_, kDefaultContextTokens, console));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, Prompt(*model));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, model->NewSession());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    SHOAL_ASSIGN_OR_RETURN(
        const GenerateResult result,
        GenerateText(*model, *session, prompt, options, interrupt->token(), console));
    if (console.json()) {
      PrintJson(*model, result, console);
    } else {
      PrintStatistics(*model, result, console);
    }
    return interrupt->requested() ? ExitCode::kInterrupted : ExitCode::kOk;
  }

 private:
  absl::StatusOr<std::vector<int32_t>> Prompt(const Model& model) const {
    if (!chat_) {
      return Text(model);
    }
    SHOAL_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::Make(model.tokenizer()));
    SHOAL_ASSIGN_OR_RETURN(const std::string text, input_.ReadText());
    return chat_template.Conversation({{ChatRole::kUser, text}});
  }

  absl::StatusOr<std::vector<int32_t>> Text(const Model& model) const {
    if (input_.ids.has_value()) {
      return *input_.ids;
    }
    // A text is read until it is too long, not to its end.
    const int64_t context = model.mode().context_tokens;
    SHOAL_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                           input_.ReadIds(model.tokenizer(), context + 1));
    if (std::ssize(ids) > context) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the prompt has more than the ", context,
                       " tokens that the context holds; raise --ctx or shorten the prompt"));
    }
    return ids;
  }

  // Prints the text as it comes, and on a terminal first how far the prompt is.
  static absl::StatusOr<GenerateResult> GenerateText(const Model& model, Session& session,
                                                     const std::vector<int32_t>& prompt,
                                                     const GenerateOptions& options,
                                                     const std::stop_token& stop,
                                                     Console& console) {
    TextStream stream(console);
    std::optional<ProgressLine> line;
    std::function<void(int64_t, int64_t)> on_progress;
    if (console.error_is_terminal()) {
      line.emplace(Clock::Real(), /*terminal=*/true,
                   [&console](absl::string_view text) { console.NoteRaw(text); });
      on_progress = [&line](int64_t done, int64_t total) {
        done < total ? line->UpdateTokens({"prompt", done, total}) : line.reset();
      };
    }
    SHOAL_ASSIGN_OR_RETURN(GenerateResult result,
                           Generate(
                               model, session, prompt, options,
                               [&stream](const TokenEvent& event) { return stream.OnToken(event); },
                               stop, on_progress));
    line.reset();
    stream.Finish(result.text);
    return result;
  }

  void PrintStatistics(const Model& model, const GenerateResult& result, Console& console) const {
    if (print_ids_) {
      console.Print(absl::StrCat(absl::StrJoin(result.ids, ","), "\n"));
    }
    console.Note(FormatGenerate(result, TotalExperts(model.ExpertStats())));
  }

  static void PrintJson(const Model& model, const GenerateResult& result, Console& console) {
    const std::vector<ExpertLayerStats> stats = model.ExpertStats();
    Json json;
    json["text"] = result.text;
    json["ids"] = result.ids;
    AddGenerateFields(result, json);
    AddExpertFields(TotalExperts(stats), json);
    AddModelFields(model, json);
    json["layers"] = LayersJson(stats);
    console.PrintJson(json);
  }

  ModelFlags model_flags_;
  TextInput input_;
  GenerateFlags generate_flags_;
  bool chat_ = false;
  bool print_ids_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeRunCommand() { return std::make_unique<RunCommand>(); }

}  // namespace shoal

#include <unistd.h>

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/chat.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/generate_flags.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/line_reader.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/statistics.h"

namespace shoal {
namespace {

constexpr absl::string_view kChatHelp =
    "/reset      forget the conversation\n"
    "/save FILE  write the conversation's state to a file\n"
    "/load FILE  go on from a file\n"
    "/stats      what was computed and read so far\n"
    "/help       this list\n"
    "/exit       end (so does the end of the input)\n"
    "//...       a message that begins with a slash\n"
    "Ctrl-C ends an answer; at the prompt it ends the chat.\n";

// The conversation at the terminal. Lives for one Run.
class ChatLoop {
 public:
  ChatLoop(const Model& model, Chat chat, Interrupt& interrupt, Console& console)
      : model_(model),
        chat_(std::move(chat)),
        interrupt_(interrupt),
        console_(console),
        terminal_(::isatty(STDIN_FILENO) == 1) {}

  absl::StatusOr<ExitCode> Run(const GenerateOptions& options) {
    LineReader reader(STDIN_FILENO);
    if (terminal_) {
      console_.Note("Type a message, or /help.");
    }
    while (!done_) {
      if (terminal_) {
        console_.NoteRaw("> ");
      }
      absl::StatusOr<std::optional<std::string>> line = reader.Next(interrupt_.token());
      if (absl::IsCancelled(line.status())) {
        console_.Note("");
        return Interrupted();
      }
      SHOAL_RETURN_IF_ERROR(line.status());
      if (!line->has_value()) {
        break;
      }
      const absl::Status status = Handle(**line, options);
      if (interrupted_ && !terminal_) {
        return Interrupted();  // who stops a script does not want its next message answered
      }
      interrupted_ = false;
      if (!status.ok() && !terminal_) {
        return status;  // a script must not go on as if the answer were there
      }
      if (!status.ok()) {
        console_.Note(absl::StrCat("shoal: ", status.message()));
      }
    }
    return ExitCode::kOk;
  }

 private:
  ExitCode Interrupted() {
    PrintStatistics(/*interrupted=*/true);
    return ExitCode::kInterrupted;
  }

  absl::Status Handle(absl::string_view line, const GenerateOptions& options) {
    if (absl::StripAsciiWhitespace(line).empty()) {
      return absl::OkStatus();
    }
    if (absl::StartsWith(line, "//")) {
      return Answer(line.substr(1), options);
    }
    return absl::StartsWith(line, "/") ? Directive(absl::StripAsciiWhitespace(line))
                                       : Answer(line, options);
  }

  absl::Status Directive(absl::string_view line) {
    const size_t space = std::min(line.find(' '), line.size());
    const absl::string_view word = line.substr(0, space);
    const std::string file(absl::StripAsciiWhitespace(line.substr(space)));
    if (word == "/save" || word == "/load") {
      if (file.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(word, " needs a file name"));
      }
      SHOAL_RETURN_IF_ERROR(word == "/save" ? chat_.Save(file) : chat_.Load(file));
      console_.Note(absl::StrCat(word == "/save" ? "saved " : "loaded ", chat_.session().position(),
                                 " tokens"));
    } else if (word == "/reset") {
      chat_.Reset();
    } else if (word == "/stats") {
      PrintStatistics(/*interrupted=*/false);
    } else if (word == "/help") {
      console_.NoteRaw(kChatHelp);
    } else if (word == "/exit" || word == "/quit") {
      done_ = true;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("unknown directive ", word,
                       "; /help lists them, and a message that begins "
                       "with a slash is typed with two"));
    }
    return absl::OkStatus();
  }

  absl::Status Answer(absl::string_view message, const GenerateOptions& options) {
    const std::vector<ExpertLayerStats> before = model_.ExpertStats();
    TextStream stream(console_);
    absl::StatusOr<GenerateResult> result = chat_.Answer(
        std::string(message), options,
        [&stream](const TokenEvent& event) { return stream.OnToken(event); }, interrupt_.token());
    interrupted_ = interrupt_.requested();
    interrupt_.Rearm();
    SHOAL_RETURN_IF_ERROR(result.status());
    stream.Finish(result->text);
    if (console_.json()) {
      Json json;
      json["role"] = "assistant";
      json["text"] = result->text;
      AddGenerateFields(*result, json);
      AddExpertFields(TotalExperts(model_.ExpertStats(), before), json);
      json["session_tokens"] = chat_.session().position();
      console_.PrintJson(json);
    } else if (result->finish_reason == FinishReason::kCallerStopped) {
      console_.Note(FormatGenerate(*result, TotalExperts(model_.ExpertStats(), before)));
    } else if (result->finish_reason != FinishReason::kEndOfText) {
      console_.Note(
          absl::StrCat("(the answer was ended by ", FinishReasonName(result->finish_reason), ")"));
    }
    return absl::OkStatus();
  }

  void PrintStatistics(bool interrupted) {
    const ExpertLayerStats experts = TotalExperts(model_.ExpertStats());
    if (console_.json()) {
      Json json;
      if (interrupted) {
        json["interrupted"] = true;
      }
      json["session_tokens"] = chat_.session().position();
      AddExpertFields(experts, json);
      AddModelFields(model_, json);
      console_.PrintJson(json);
    } else {
      console_.Note(absl::StrCat(chat_.session().position(), " of ",
                                 chat_.session().context_tokens(), " tokens of context used; ",
                                 FormatExperts(experts)));
    }
  }

  const Model& model_;
  Chat chat_;
  Interrupt& interrupt_;
  Console& console_;
  const bool terminal_;
  bool done_ = false;
  bool interrupted_ = false;  // the newest answer
};

class ChatCommand final : public Command {
 public:
  std::string name() const override { return "chat"; }
  std::string summary() const override { return "Talk with a model"; }
  std::string examples() const override {
    return "  shoal chat ~/models/kimi-linear\n"
           "  shoal chat ~/models/kimi-linear --system \"You are a small storyteller.\"\n"
           "  printf 'Hello!\\nHow are you?\\n' | shoal chat ~/models/kimi-linear --json\n"
           "Within a chat:\n" +
           std::string(kChatHelp.substr(0, kChatHelp.size() - 1));
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    flags.Heading("Chat");
    flags.Text("--system", "TEXT", &system_, "What the model is told before the first message");
    generate_flags_.Add(flags);
    model_flags_.AddOptions(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const GenerateOptions options, generate_flags_.Checked());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           OpenModel(model_flags_, kDefaultContextTokens, console));
    SHOAL_ASSIGN_OR_RETURN(Chat chat, Chat::Make(*model, system_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    return ChatLoop(*model, std::move(chat), *interrupt, console).Run(options);
  }

 private:
  ModelFlags model_flags_;
  GenerateFlags generate_flags_;
  std::optional<std::string> system_;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace shoal

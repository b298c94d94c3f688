#include "coordinator/cli/program.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/cli/console.h"
#include "coordinator/cli/exit_code.h"

namespace shoal {
namespace {

using Commands = std::vector<std::unique_ptr<Command>>;

std::string ProgramHelp(const Commands& commands) {
  std::string help =
      "Runs mixture-of-experts language models that are larger than memory: the experts stay on "
      "disk\nand are read when a token needs them.\n\nUsage: shoal COMMAND [ARGUMENTS]\n\n"
      "Commands:\n";
  for (const std::unique_ptr<Command>& command : commands) {
    absl::StrAppendFormat(&help, "  %-14s %s\n", command->name(), command->summary());
  }
  absl::StrAppend(
      &help,
      "\n`shoal COMMAND --help` explains a command and shows examples. Every command takes "
      "--json.\n"
      "\nExit codes:\n"
      "  0    success\n"
      "  1    an error that has no other number\n"
      "  2    unknown command or flag, or a value that is not accepted\n"
      "  3    the budget, or the memory that is free, is below what the model needs at least\n"
      "       (`shoal plan` has the table)\n"
      "  4    data is damaged: a checksum differs, or `shoal inspect --verify` found problems\n"
      "  130  interrupted with Ctrl-C\n"
      "\nExamples:\n"
      "  shoal convert ~/checkpoints/Kimi-Linear ~/models/kimi-linear\n"
      "  shoal run ~/models/kimi-linear \"Once upon a time\"\n");
  return help;
}

// The commands whose first word this is, of two; empty where there are none.
std::string GroupHelp(const Commands& commands, const std::string& word) {
  std::string help;
  for (const std::unique_ptr<Command>& command : commands) {
    if (absl::StartsWith(command->name(), word + " ")) {
      absl::StrAppendFormat(&help, "  %-16s %s\n", command->name(), command->summary());
    }
  }
  return help.empty() ? help
                      : absl::StrCat("Commands:\n", help, "\n`shoal ", word,
                                     " COMMAND --help` explains one and shows examples.\n");
}

Command* Find(const Commands& commands, const std::string& name) {
  for (const std::unique_ptr<Command>& command : commands) {
    if (command->name() == name) {
      return command.get();
    }
  }
  return nullptr;
}

absl::Status UnknownCommand(const Commands& commands, const std::string& name) {
  std::vector<std::string> names;
  for (const std::unique_ptr<Command>& command : commands) {
    names.push_back(command->name());
  }
  const std::optional<std::string> suggestion = Suggestion(name, names);
  return UsageError(
      absl::StrCat("unknown command '", name, "'; ",
                   suggestion.has_value() ? absl::StrCat("did you mean '", *suggestion, "'? ") : "",
                   "`shoal --help` lists the commands"));
}

absl::StatusOr<ExitCode> RunCommand(Command& command, std::span<const std::string> args,
                                    Console& console) {
  FlagSet flags("shoal", command.name(), command.summary());
  command.AddFlags(flags);
  bool json = false;  // already known: the console was made with it
  flags.Heading("Output");
  flags.Switch("--json", &json, "Print the result as one JSON object a line");
  absl::StatusOr<std::optional<std::string>> help = flags.Parse(args, command.examples());
  if (!help.ok()) {
    return help.status();
  }
  if (help->has_value()) {
    console.Print(**help);
    return ExitCode::kOk;
  }
  return command.Run(console);
}

// `args` is not empty.
absl::StatusOr<ExitCode> Dispatch(std::vector<std::string> args, const Commands& commands,
                                  Console& console) {
  if (args[0] == "--version") {
    args[0] = "version";
  }
  if (args[0] == "help" && args.size() >= 2) {
    args.erase(args.begin());
    args.emplace_back("--help");
  }
  if (args[0] == "help" || args[0] == "--help" || args[0] == "-h") {
    console.Print(ProgramHelp(commands));
    return ExitCode::kOk;
  }
  // Some commands have a name of two words.
  if (args.size() >= 2) {
    if (Command* command = Find(commands, absl::StrCat(args[0], " ", args[1]))) {
      return RunCommand(*command, std::span(args).subspan(2), console);
    }
  }
  Command* command = Find(commands, args[0]);
  const std::string group = GroupHelp(commands, args[0]);
  if (command == nullptr && !group.empty() && args.size() == (args.back() == "--help" ? 2U : 1U)) {
    console.Print(group);
    return ExitCode::kOk;
  }
  if (command == nullptr) {
    return UnknownCommand(commands, args[0]);
  }
  return RunCommand(*command, std::span(args).subspan(1), console);
}

int Report(const absl::Status& status, Console& console) {
  const auto exit_code = static_cast<int>(ExitCodeOf(status));
  const std::string message(status.message());
  console.Note(absl::StrCat("shoal: ", message));
  if (console.json()) {
    console.PrintJson({{"error",
                        {{"code", absl::StatusCodeToString(status.code())},
                         {"message", message},
                         {"exit_code", exit_code}}}});
  }
  return exit_code;
}

}  // namespace

int RunProgram(std::span<const std::string> args, const Commands& commands) {
  // Looked for before parsing, so that an error in the arguments is reported in the wanted form.
  const auto text_begins = std::find(args.begin(), args.end(), "--");
  Console console(std::find(args.begin(), text_begins, "--json") != text_begins);
  if (args.empty()) {
    console.NoteRaw(ProgramHelp(commands));
    return static_cast<int>(ExitCode::kUsage);
  }
  const absl::StatusOr<ExitCode> exit_code =
      Dispatch(std::vector<std::string>(args.begin(), args.end()), commands, console);
  if (!exit_code.ok()) {
    return Report(exit_code.status(), console);
  }
  if (const absl::Status output = console.CheckOutput(); !output.ok()) {
    return Report(output, console);
  }
  return static_cast<int>(*exit_code);
}

}  // namespace shoal

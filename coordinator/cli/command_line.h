// Commands and their flags.
#ifndef SHOAL_COORDINATOR_CLI_COMMAND_LINE_H_
#define SHOAL_COORDINATOR_CLI_COMMAND_LINE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/console.h"
#include "coordinator/cli/exit_code.h"

namespace shoal {

// Accepted values, ends included.
struct IntegerRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};

// The flags of one command. Each function declares one and says where its value goes; the target
// keeps what it held where the flag is absent, and outlives the parse. Flag names are given with
// their dashes ("--seed", or "-v,--verbose"); `value_name` is the placeholder in the help.
class FlagSet {
 public:
  FlagSet(const std::string& program, const std::string& command, const std::string& summary);
  ~FlagSet();
  FlagSet(const FlagSet&) = delete;
  FlagSet& operator=(const FlagSet&) = delete;

  // Flags declared from here on are listed under this heading.
  void Heading(const std::string& heading);

  void RequiredArgument(const std::string& name, std::string* value, const std::string& help);
  void OptionalArgument(const std::string& name, std::optional<std::string>* value,
                        const std::string& help);
  void Switch(const std::string& flag, bool* value, const std::string& help);
  void Text(const std::string& flag, const std::string& value_name,
            std::optional<std::string>* value, const std::string& help);
  // May be given several times.
  void Texts(const std::string& flag, const std::string& value_name,
             std::vector<std::string>* values, const std::string& help);
  void Integer(const std::string& flag, int64_t* value, IntegerRange range,
               const std::string& help);
  void Integer(const std::string& flag, std::optional<int64_t>* value, IntegerRange range,
               const std::string& help);
  // Any finite number; the library says which of them it takes.
  void Real(const std::string& flag, double* value, const std::string& help);
  // As ParseByteSize takes it.
  void ByteSize(const std::string& flag, std::optional<uint64_t>* value, const std::string& help);
  void Choice(const std::string& flag, const std::vector<std::string>& choices,
              std::optional<std::string>* value, const std::string& help);
  // Token ids separated by commas or spaces.
  void Ids(const std::string& flag, std::optional<std::vector<int32_t>>* value,
           const std::string& help);

  // Reads the arguments that follow the command's name. Returns the help text where it was asked
  // for, nothing otherwise. INVALID_ARGUMENT (a UsageError) names flag, value and accepted values.
  absl::StatusOr<std::optional<std::string>> Parse(std::span<const std::string> args,
                                                   const std::string& examples);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// One command of the program: flags -> library -> text or JSON.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;   // one line
  virtual std::string examples() const = 0;  // lines of the help, indented by two
  virtual void AddFlags(FlagSet& flags) = 0;
  // Called once, after the flags were read. An error is printed by the caller.
  virtual absl::StatusOr<ExitCode> Run(Console& console) = 0;
};

// The candidate that `word` was probably meant to be: the closest within a third of its length in
// edits, or one that it begins.
std::optional<std::string> Suggestion(absl::string_view word,
                                      const std::vector<std::string>& candidates);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_COMMAND_LINE_H_

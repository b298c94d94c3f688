// The program around the commands.
#ifndef SHOAL_COORDINATOR_CLI_PROGRAM_H_
#define SHOAL_COORDINATOR_CLI_PROGRAM_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "coordinator/cli/command_line.h"

namespace shoal {

// Runs the command that the arguments (without the program's name) name, `--help` and `--version`
// included, and returns the process's exit code. An error is a line "shoal: ..." on standard error,
// and with --json also an object on standard output:
//   {"error": {"code": "NOT_FOUND", "message": "...", "exit_code": 1}}
int RunProgram(std::span<const std::string> args,
               const std::vector<std::unique_ptr<Command>>& commands);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_PROGRAM_H_

// All commands of `shoal`, one source file each.
#ifndef SHOAL_COORDINATOR_CLI_COMMANDS_H_
#define SHOAL_COORDINATOR_CLI_COMMANDS_H_

#include <memory>

#include "coordinator/cli/command_line.h"

namespace shoal {

std::unique_ptr<Command> MakeConvertCommand();
std::unique_ptr<Command> MakePlanCommand();
std::unique_ptr<Command> MakeRunCommand();
std::unique_ptr<Command> MakeChatCommand();
std::unique_ptr<Command> MakeEvalCommand();
std::unique_ptr<Command> MakeTokenizeCommand();
std::unique_ptr<Command> MakeDetokenizeCommand();
std::unique_ptr<Command> MakeInspectCommand();
std::unique_ptr<Command> MakeShardCommand();
std::unique_ptr<Command> MakeSynthCommand();
std::unique_ptr<Command> MakeFillCommand();
std::unique_ptr<Command> MakeBenchCommand();
std::unique_ptr<Command> MakeBenchLinkCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakeClusterStatusCommand();
std::unique_ptr<Command> MakeClusterDrainCommand();
std::unique_ptr<Command> MakeClusterPlanCommand();
std::unique_ptr<Command> MakeClusterDrillCommand();
std::unique_ptr<Command> MakeClusterInitCommand();
std::unique_ptr<Command> MakeClusterInviteCommand();
std::unique_ptr<Command> MakeClusterIssueCommand();
std::unique_ptr<Command> MakeClusterRevokeCommand();
std::unique_ptr<Command> MakeKeysAddCommand();
std::unique_ptr<Command> MakeKeysListCommand();
std::unique_ptr<Command> MakeKeysRevokeCommand();
std::unique_ptr<Command> MakeVersionCommand();

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_COMMANDS_H_

// shoal: hands its arguments to the command that they name.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/cli/commands.h"
#include "coordinator/cli/program.h"

int main(int argc, char** argv) {
  // A write beyond the limit on file sizes then fails like one on a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  std::vector<std::unique_ptr<shoal::Command>> commands;
  commands.push_back(shoal::MakeConvertCommand());
  commands.push_back(shoal::MakePlanCommand());
  commands.push_back(shoal::MakeRunCommand());
  commands.push_back(shoal::MakeChatCommand());
  commands.push_back(shoal::MakeEvalCommand());
  commands.push_back(shoal::MakeTokenizeCommand());
  commands.push_back(shoal::MakeDetokenizeCommand());
  commands.push_back(shoal::MakeInspectCommand());
  commands.push_back(shoal::MakeShardCommand());
  commands.push_back(shoal::MakeSynthCommand());
  commands.push_back(shoal::MakeFillCommand());
  commands.push_back(shoal::MakeBenchCommand());
  commands.push_back(shoal::MakeBenchLinkCommand());
  commands.push_back(shoal::MakeServeCommand());
  commands.push_back(shoal::MakeClusterStatusCommand());
  commands.push_back(shoal::MakeClusterDrainCommand());
  commands.push_back(shoal::MakeClusterPlanCommand());
  commands.push_back(shoal::MakeClusterDrillCommand());
  commands.push_back(shoal::MakeClusterInitCommand());
  commands.push_back(shoal::MakeClusterInviteCommand());
  commands.push_back(shoal::MakeClusterIssueCommand());
  commands.push_back(shoal::MakeClusterRevokeCommand());
  commands.push_back(shoal::MakeKeysAddCommand());
  commands.push_back(shoal::MakeKeysListCommand());
  commands.push_back(shoal::MakeKeysRevokeCommand());
  commands.push_back(shoal::MakeVersionCommand());
  const int code =
      shoal::RunProgram(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), commands);
  // Everything of ours is closed. Not through static destructors: threads of gRPC may still be
  // putting away its last channel, and would meet them.
  std::fflush(nullptr);
  std::_Exit(code);
}

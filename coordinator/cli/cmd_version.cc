#include "absl/strings/str_format.h"
#include "common/container/manifest.h"
#include "common/version.h"
#include "coordinator/cli/commands.h"

namespace shoal {
namespace {

class VersionCommand final : public Command {
 public:
  std::string name() const override { return "version"; }
  std::string summary() const override { return "Print the version"; }
  std::string examples() const override { return "  shoal version --json"; }
  void AddFlags(FlagSet& /*flags*/) override {}

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (console.json()) {
      console.PrintJson(
          {{"version", std::string(kVersion)}, {"container_version", kContainerVersion}});
    } else {
      console.Print(
          absl::StrFormat("shoal %s (container version %d)\n", kVersion, kContainerVersion));
    }
    return ExitCode::kOk;
  }
};

}  // namespace

std::unique_ptr<Command> MakeVersionCommand() { return std::make_unique<VersionCommand>(); }

}  // namespace shoal

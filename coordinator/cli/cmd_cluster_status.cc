#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/stop_wait.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/cluster_report.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"

namespace shoal {
namespace {

constexpr absl::string_view kClearScreen = "\033[H\033[2J";

class ClusterStatusCommand final : public Command {
 public:
  std::string name() const override { return "cluster status"; }
  std::string summary() const override { return "What the nodes of a pool are doing now"; }
  std::string examples() const override {
    return "  shoal cluster status\n"
           "  shoal cluster status --watch\n"
           "  shoal cluster status --at 127.0.0.1:7070 --json\n"
           "It looks twice, so rates are of the time between. Shares are of a layer's round trip:\n"
           "kernel (computing), disk (waiting for it), queue, and network, which is the rest.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.Switch("--watch", &watch_, "Go on until Ctrl-C");
    flags.Integer("--interval", &interval_ms_, {10, 60'000},
                  "Milliseconds between two looks (default 1000)");
    cluster_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterClient> client, cluster_.Client(console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const Clock& clock = Clock::Real();
    ClusterLook look;
    absl::Time last = clock.Now();
    SHOAL_ASSIGN_OR_RETURN(look.now, client->Status());
    do {
      if (!WaitUnlessStopped(absl::Milliseconds(interval_ms_), interrupt->token()).ok()) {
        return watch_ ? ExitCode::kOk : ExitCode::kInterrupted;
      }
      look.before = std::move(look.now);
      SHOAL_ASSIGN_OR_RETURN(look.now, client->Status());
      look.interval = clock.Now() - last;
      last += look.interval;
      Show(look, console);
      SHOAL_RETURN_IF_ERROR(console.CheckOutput());
    } while (watch_);
    return ExitCode::kOk;
  }

 private:
  void Show(const ClusterLook& look, Console& console) const {
    if (console.json()) {
      console.PrintJson(ClusterJson(look));
    } else {
      const bool clear = watch_ && console.out_is_terminal();
      console.Print(absl::StrCat(clear ? kClearScreen : "", FormatCluster(look)));
    }
  }

  ClusterFlags cluster_;
  bool watch_ = false;
  int64_t interval_ms_ = 1000;
};

}  // namespace

std::unique_ptr<Command> MakeClusterStatusCommand() {
  return std::make_unique<ClusterStatusCommand>();
}

}  // namespace shoal

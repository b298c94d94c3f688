#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/progress.h"

namespace shoal {
namespace {

class ClusterDrillCommand final : public Command {
 public:
  std::string name() const override { return "cluster drill"; }
  std::string summary() const override { return "Strike a node in mid-answer, and see the gap"; }
  std::string examples() const override {
    return "  shoal cluster drill kill attic\n"
           "  shoal cluster drill slow attic --factor 50 --seconds 20\n"
           "  shoal cluster drill corrupt attic --records 32 --json\n"
           "The coordinator continues a fixed text twice and strikes the second time. Only a node "
           "that\nwas started with --allow-drill can be struck. Exit code 4: the answer changed.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("KIND", &kind_, "kill, slow or corrupt");
    flags.RequiredArgument("NODE", &node_, "Name of the node, as `shoal cluster status` has it");
    flags.Integer("--tokens", &tokens_, {kLeastDrillTokens, kMostDrillTokens},
                  "Tokens of each answer (default 200)");
    flags.Integer("--factor", &factor_, {2, 1000},
                  "slow: so many times the node's time for a layer (default 50)");
    flags.Integer("--seconds", &seconds_, {1, 600}, "slow: for so long (default 10)");
    flags.Integer("--records", &records_, {1, 10'000},
                  "corrupt: records that arrive damaged (default 16)");
    cluster_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const Strike strike, StrikeOfKind());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterClient> client, cluster_.Client(console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const absl::StatusOr<DrillReport> report = Drill(*client, strike, *interrupt, console);
    SHOAL_RETURN_IF_ERROR(report.status());
    if (console.json()) {
      PrintJson(*report, console);
    } else {
      PrintText(*report, console);
    }
    return report->same_tokens && report->same_logits ? ExitCode::kOk : ExitCode::kDataDamaged;
  }

 private:
  absl::StatusOr<Strike> StrikeOfKind() const {
    if (kind_ == "kill") {
      return KillStrike{};
    }
    if (kind_ == "slow") {
      return SlowStrike{factor_, absl::Seconds(seconds_)};
    }
    if (kind_ == "corrupt") {
      return CorruptStrike{records_};
    }
    return UsageError(absl::StrCat("'", kind_, "' is no drill: kill, slow and corrupt are"));
  }

  absl::StatusOr<DrillReport> Drill(ClusterClient& client, const Strike& strike,
                                    const Interrupt& interrupt, Console& console) const {
    ProgressLine line(Clock::Real(), console.error_is_terminal(),
                      [&console](absl::string_view text) { console.NoteRaw(text); });
    return client.Drill(
        node_, strike, tokens_,
        // Counted through both answers: rate and time left are of all that was done.
        [&](int answer, int64_t index, absl::Duration /*time*/) {
          line.UpdateTokens({answer == 0 ? "undisturbed answer" : "answer with the strike",
                             answer * tokens_ + index + 1, 2 * tokens_});
        },
        interrupt.token());
  }

  void PrintText(const DrillReport& report, Console& console) const {
    const auto milliseconds = [](absl::Duration time) {
      return absl::StrFormat("%.1f ms", absl::ToDoubleMilliseconds(time));
    };
    console.Print(absl::StrCat(
        kind_, " ", node_, " before token ", StrikeIndex(tokens_) + 1, " of ", tokens_, "\n",
        "tokens:      ", report.same_tokens ? "the same" : "DIFFERENT", "\n",
        "logits:      ", report.same_logits ? "the same, to the bit" : "DIFFERENT", "\n",
        "a token:     ", milliseconds(report.steady_before), " before, ",
        milliseconds(report.steady_after), " at the end (medians)\n",  //
        "longest:     ", milliseconds(report.longest), "\n",           //
        "gap:         ", milliseconds(report.Gap()), " beyond the slower of the two\n"));
  }

  void PrintJson(const DrillReport& report, Console& console) const {
    console.PrintJson({{"kind", kind_},
                       {"node", node_},
                       {"tokens", tokens_},
                       {"struck_before_token", StrikeIndex(tokens_)},
                       {"same_tokens", report.same_tokens},
                       {"same_logits", report.same_logits},
                       {"steady_before_ms", absl::ToDoubleMilliseconds(report.steady_before)},
                       {"steady_after_ms", absl::ToDoubleMilliseconds(report.steady_after)},
                       {"longest_ms", absl::ToDoubleMilliseconds(report.longest)},
                       {"gap_ms", absl::ToDoubleMilliseconds(report.Gap())}});
  }

  ClusterFlags cluster_;
  std::string kind_;
  std::string node_;
  int64_t tokens_ = 200;
  int64_t factor_ = 50;
  int64_t seconds_ = 10;
  int64_t records_ = 16;
};

}  // namespace

std::unique_ptr<Command> MakeClusterDrillCommand() {
  return std::make_unique<ClusterDrillCommand>();
}

}  // namespace shoal

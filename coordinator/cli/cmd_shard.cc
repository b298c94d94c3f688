#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/container/container.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/cli/progress.h"
#include "coordinator/pool/shard.h"

namespace shoal {
namespace {

class ShardCommand final : public Command {
 public:
  std::string name() const override { return "shard"; }
  std::string summary() const override { return "Make the partitions of a pool's nodes"; }
  std::string examples() const override {
    return "  shoal shard ~/models/kimi-linear --plan pool.json --out /data/partitions\n"
           "  shoal shard ~/models/kimi-linear --plan pool.json --out /mnt/usb --node attic\n"
           "Interrupted or killed, the same command goes on where it stopped.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Container made by `shoal convert`");
    flags.Text("--plan", "FILE", &plan_, "Plan of the pool, made by `shoal plan --out FILE`");
    flags.Text("--out", "OUT", &out_, "Where the partitions go: OUT/NAME for each node");
    flags.Text("--node", "NAME", &node_, "Only the partition of this node");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (!plan_.has_value() || !out_.has_value()) {
      return UsageError(absl::StrCat(plan_.has_value() ? "--out OUT" : "--plan FILE",
                                     " is missing; `shoal shard --help` has examples"));
    }
    SHOAL_ASSIGN_OR_RETURN(const PoolPlan plan, ReadPlanOf("--plan", *plan_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const Clock& clock = Clock::Real();
    const absl::Time start = clock.Now();
    const absl::StatusOr<ShardReport> report =
        ShardWithProgress(*container, plan, *interrupt, console);
    if (absl::IsCancelled(report.status())) {
      return absl::CancelledError(
          absl::StrCat("interrupted; what is finished is kept in ", *out_,
                       "/*.partial, and the same command goes on from there"));
    }
    SHOAL_RETURN_IF_ERROR(report.status());
    NoteRemade(*report, console);
    if (console.json()) {
      PrintJson(plan, *report, clock.Now() - start, console);
    } else {
      PrintText(*report, clock.Now() - start, console);
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<ShardReport> ShardWithProgress(const Container& container, const PoolPlan& plan,
                                                const Interrupt& interrupt, Console& console) {
    ProgressLine line(Clock::Real(), console.error_is_terminal(),
                      [&console](absl::string_view text) { console.NoteRaw(text); });
    return Shard(
        container, plan, *out_, {.only_node = node_.value_or("")},
        [&line](const ShardProgress& progress) {
          line.Update({.step = progress.step,
                       .bytes_done = progress.bytes_done,
                       .bytes_total = progress.bytes_total,
                       .bytes_skipped = progress.bytes_kept});
        },
        interrupt.token());
  }

  static void NoteRemade(const ShardReport& report, Console& console) {
    for (const ShardedNode& node : report.nodes) {
      for (const std::string& file : node.remade_files) {
        console.Note(absl::StrCat("shoal: ", file, " of an earlier run for node ", node.name,
                                  " was not as it had been left; made again"));
      }
    }
  }

  static void PrintText(const ShardReport& report, absl::Duration time, Console& console) {
    std::string text;
    for (const ShardedNode& node : report.nodes) {
      absl::StrAppendFormat(&text, "%s: %s in %s%s\n", node.name,
                            FormatByteSize(node.partition_bytes), node.directory,
                            node.already_there ? ", already there" : "");
      for (const ExpertSlice& slice : node.slices) {
        absl::StrAppend(&text, "  ", FormatSlice(slice), "\n");
      }
    }
    absl::StrAppendFormat(&text, "done in %.1f s\n", absl::ToDoubleSeconds(time));
    console.Print(text);
  }

  static void PrintJson(const PoolPlan& plan, const ShardReport& report, absl::Duration time,
                        Console& console) {
    Json json;
    json["identity"] = plan.identity;
    json["epoch"] = plan.epoch;
    json["seconds"] = absl::ToDoubleSeconds(time);
    json["nodes"] = Json::array();
    for (const ShardedNode& node : report.nodes) {
      json["nodes"].push_back({{"name", node.name},
                               {"directory", node.directory},
                               {"already_there", node.already_there},
                               {"partition_bytes", node.partition_bytes},
                               {"banks_copied", node.banks_copied},
                               {"banks_kept", node.banks_kept},
                               {"remade_files", node.remade_files},
                               {"slices", Json(SlicesToJson(node.slices))}});
    }
    console.PrintJson(json);
  }

  std::string directory_;
  std::optional<std::string> plan_;
  std::optional<std::string> out_;
  std::optional<std::string> node_;
};

}  // namespace

std::unique_ptr<Command> MakeShardCommand() { return std::make_unique<ShardCommand>(); }

}  // namespace shoal

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/container/container.h"
#include "common/io/byte_size.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/progress.h"
#include "coordinator/synth/synthesize.h"

namespace shoal {
namespace {

class SynthCommand final : public Command {
 public:
  std::string name() const override { return "synth"; }
  std::string summary() const override {
    return "Make a container of random weights, to measure with";
  }
  std::string examples() const override {
    return "  shoal synth --like kimi-k3 --layers 3 --experts 64 --vocab 512 /data/k3-like\n"
           "  shoal synth --like kimi-linear-48b /data/48b-like\n"
           "The answers are noise; sizes, reads and arithmetic are those of the model. kimi-k3 "
           "has\n"
           "the blocks of Kimi-Linear-48B around experts of K3's shape.\n"
           "Interrupted or killed, nothing is kept: the same command begins again.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Where the container goes");
    flags.Heading("Model");
    flags.Choice("--like", SyntheticFamilies(), &like_, "Whose shapes it has");
    flags.Integer("--layers", &layers_, {2, 4096},
                  "Layers in all, the first without experts\n(default: the family's)");
    flags.Integer(
        "--experts", &experts_, {1, 1'000'000},
        "Experts in each layer (default: the family's);\na layer of all 896 of K3 is 11 GB");
    flags.Integer("--vocab", &vocab_, {512, 1 << 20},
                  "Tokens (default: the family's); fewer make embedding\nand head smaller");
    flags.Choice("--codec", {"tcq3", "rvq3"}, &codec_, "How experts are stored (default: tcq3)");
    flags.Integer("--seed", &seed_, {0}, "Another seed gives other weights (default 0)");
    flags.Integer("--jobs", &jobs_, {1, 1024},
                  "Threads (default: the CPUs this process may use);\nnever changes the result");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (!like_.has_value()) {
      return UsageError(
          absl::StrCat("--like is missing; it takes ", absl::StrJoin(SyntheticFamilies(), ", ")));
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const Clock& clock = Clock::Real();
    const absl::Time start = clock.Now();
    const absl::StatusOr<SynthReport> report = SynthesizeWithProgress(*interrupt, console);
    if (absl::IsCancelled(report.status())) {
      return absl::CancelledError(
          "interrupted; nothing was kept, and the same command begins again");
    }
    if (absl::IsInvalidArgument(report.status()) && experts_) {
      // Of the others the flags know the bounds.
      return UsageError(
          absl::StrCat("--experts ", *experts_, ": ", std::string(report.status().message())));
    }
    SHOAL_RETURN_IF_ERROR(report.status());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    if (console.json()) {
      PrintJson(container->manifest(), *report, clock.Now() - start, console);
    } else {
      PrintText(container->manifest(), *report, clock.Now() - start, console);
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<SynthReport> SynthesizeWithProgress(const Interrupt& interrupt, Console& console) {
    ProgressLine line(Clock::Real(), console.error_is_terminal(),
                      [&console](absl::string_view text) { console.NoteRaw(text); });
    SynthOptions options;
    options.shape = {*like_, layers_, experts_, vocab_};
    if (codec_) {
      SHOAL_ASSIGN_OR_RETURN(options.experts, ExpertCodecFromName(*codec_));
    }
    options.seed = static_cast<uint64_t>(seed_);
    options.num_jobs = static_cast<int>(jobs_.value_or(0));
    return Synthesize(
        directory_, options,
        [&line](const SynthProgress& progress) {
          line.Update({.step = progress.step,
                       .bytes_done = progress.bytes_done,
                       .bytes_total = progress.bytes_total});
        },
        interrupt.token());
  }

  void PrintText(const Manifest& manifest, const SynthReport& report, absl::Duration time,
                 Console& console) const {
    std::string text;
    if (report.already_there) {
      absl::StrAppend(&text, directory_, " already holds this container.\n");
    }
    absl::StrAppendFormat(&text, "%s: %s in %.1f s; %d layers with %d experts of %s\n", directory_,
                          FormatByteSize(report.container_bytes), absl::ToDoubleSeconds(time),
                          manifest.config.num_moe_layers(), manifest.config.moe.num_experts,
                          FormatByteSize(manifest.unit_layout.record_bytes));
    console.Print(text);
  }

  void PrintJson(const Manifest& manifest, const SynthReport& report, absl::Duration time,
                 Console& console) const {
    Json json;
    json["directory"] = directory_;
    json["identity"] = report.identity;
    json["already_there"] = report.already_there;
    json["container_bytes"] = report.container_bytes;
    json["moe_layers"] = manifest.config.num_moe_layers();
    json["experts"] = manifest.config.moe.num_experts;
    json["record_bytes"] = manifest.unit_layout.record_bytes;
    json["seconds"] = absl::ToDoubleSeconds(time);
    console.PrintJson(json);
  }

  std::string directory_;
  std::optional<std::string> like_;
  std::optional<std::string> codec_;
  std::optional<int64_t> layers_;
  std::optional<int64_t> experts_;
  std::optional<int64_t> vocab_;
  int64_t seed_ = 0;
  std::optional<int64_t> jobs_;
};

}  // namespace

std::unique_ptr<Command> MakeSynthCommand() { return std::make_unique<SynthCommand>(); }

}  // namespace shoal

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/container/container.h"
#include "common/io/byte_size.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/container_size.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/progress.h"
#include "coordinator/convert/converter.h"

namespace shoal {
namespace {

class ConvertCommand final : public Command {
 public:
  std::string name() const override { return "convert"; }
  std::string summary() const override { return "Make a container from a Hugging Face checkpoint"; }
  std::string examples() const override {
    return "  shoal convert ~/checkpoints/Kimi-Linear ~/models/kimi-linear\n"
           "  shoal convert examples/tiny-kimi-linear /tmp/tiny --experts f32 --trunk f32\n"
           "Interrupted or killed, the same command goes on where it stopped.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("CHECKPOINT", &checkpoint_,
                           "Directory with config.json, safetensors and tokenizer");
    flags.RequiredArgument("DIR", &directory_, "Where the container goes");
    flags.Heading("Conversion");
    flags.Choice(
        "--trunk", {"q4", "q8", "bf16", "f32"}, &trunk_,
        "How everything but the experts is stored\n(default: q8, or q4 where that is large "
        "for this machine)");
    flags.Choice("--experts", {"rvq3", "tcq3", "f32"}, &experts_,
                 "How experts are stored: 3 bits a weight, by a trellis\n(default) or by residual "
                 "vectors, or lossless");
    flags.Integer("--seed", &seed_, {0}, "Seed of the rotations or codebooks (default 0)");
    flags.Integer("--jobs", &jobs_, {1, 1024},
                  "Threads (default: the CPUs this process may use);\nnever changes the result");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const ConvertOptions options, Options());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const Clock& clock = Clock::Real();
    const absl::Time start = clock.Now();
    absl::StatusOr<ConvertReport> report = ConvertWithProgress(options, *interrupt, console);
    if (absl::IsCancelled(report.status())) {
      return absl::CancelledError(
          absl::StrCat("interrupted; what is finished is kept in ", directory_,
                       ".partial, and the same command goes on from there"));
    }
    SHOAL_RETURN_IF_ERROR(report.status());
    for (const std::string& file : report->remade_files) {
      console.Note(absl::StrCat("shoal: ", file,
                                " of the earlier run was not as it had been left; made again"));
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    const ContainerSize size = SizeOf(container->manifest());
    if (console.json()) {
      PrintJson(*report, size, clock.Now() - start, console);
    } else {
      PrintText(*report, size, clock.Now() - start, console);
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<ConvertOptions> Options() const {
    ConvertOptions options;
    options.seed = static_cast<uint64_t>(seed_);
    options.num_jobs = static_cast<int>(jobs_.value_or(0));
    if (trunk_.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(options.trunk, TrunkTypeFromName(*trunk_));
    }
    if (experts_.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(options.experts, ExpertCodecFromName(*experts_));
    }
    return options;
  }

  absl::StatusOr<ConvertReport> ConvertWithProgress(const ConvertOptions& options,
                                                    const Interrupt& interrupt, Console& console) {
    ProgressLine line(Clock::Real(), console.error_is_terminal(),
                      [&console](absl::string_view text) { console.NoteRaw(text); });
    return Convert(
        checkpoint_, directory_, options,
        [&line](const ConvertProgress& progress) {
          line.Update({.step = progress.step,
                       .bytes_done = progress.source_bytes_done,
                       .bytes_total = progress.source_bytes_total,
                       .bytes_skipped = progress.source_bytes_resumed});
        },
        interrupt.token());
  }

  void PrintText(const ConvertReport& report, const ContainerSize& size, absl::Duration time,
                 Console& console) const {
    std::string text;
    if (report.already_converted) {
      absl::StrAppend(&text, directory_, " already holds this conversion.\n");
    }
    absl::StrAppend(&text, "layer  relative error of the experts\n");
    for (const ConvertLayerReport& layer : report.layers) {
      absl::StrAppendFormat(&text, "%5d  %.6f\n", layer.layer, layer.relative_error);
    }
    if (report.trunk_relative_error.has_value()) {
      absl::StrAppendFormat(&text, "trunk  %.6f (%s)\n", *report.trunk_relative_error,
                            TrunkTypeName(report.trunk));
    }
    absl::StrAppendFormat(&text, "%s: %s in %.1f s; %.3f bits a weight, %.3f in the experts\n",
                          directory_, FormatByteSize(report.container_bytes),
                          absl::ToDoubleSeconds(time), size.bits_per_weight(),
                          size.expert_bits_per_weight());
    console.Print(text);
  }

  void PrintJson(const ConvertReport& report, const ContainerSize& size, absl::Duration time,
                 Console& console) const {
    Json json;
    json["directory"] = directory_;
    json["identity"] = report.identity;
    json["already_converted"] = report.already_converted;
    json["container_bytes"] = report.container_bytes;
    json["bits_per_weight"] = size.bits_per_weight();
    json["expert_bits_per_weight"] = size.expert_bits_per_weight();
    json["trunk"] = std::string(TrunkTypeName(report.trunk));
    if (report.trunk_relative_error.has_value()) {
      json["trunk_relative_error"] = *report.trunk_relative_error;
    }
    json["remade_files"] = report.remade_files;
    json["seconds"] = absl::ToDoubleSeconds(time);
    json["layers"] = Json::array();
    for (const ConvertLayerReport& layer : report.layers) {
      json["layers"].push_back({{"layer", layer.layer}, {"relative_error", layer.relative_error}});
    }
    console.PrintJson(json);
  }

  std::string checkpoint_;
  std::string directory_;
  std::optional<std::string> trunk_;
  std::optional<std::string> experts_;
  int64_t seed_ = 0;
  std::optional<int64_t> jobs_;
};

}  // namespace

std::unique_ptr<Command> MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace shoal

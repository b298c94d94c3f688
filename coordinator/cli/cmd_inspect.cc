#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/container/container.h"
#include "common/container/partition.h"
#include "common/container/slice_json.h"
#include "common/container/verify.h"
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

class InspectCommand final : public Command {
 public:
  std::string name() const override { return "inspect"; }
  std::string summary() const override {
    return "Describe, verify or unpack a container, or a node's partition";
  }
  std::string examples() const override {
    return "  shoal inspect ~/models/kimi-linear\n"
           "  shoal inspect ~/models/kimi-linear --verify\n"
           "  shoal inspect /data/partitions/attic --verify\n"
           "  shoal inspect ~/models/kimi-linear --dequantize /tmp/checkpoint-f32\n"
           "--verify ends with exit code 4 where it finds a problem.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument(
        "DIR", &directory_,
        "Container made by `shoal convert`, or partition\nmade by `shoal shard`");
    flags.Switch("--verify", &verify_, "Check every byte against the digests");
    flags.Text("--dequantize", "OUT", &dequantize_,
               "Write the container's own weights as a Hugging Face\ncheckpoint in float32; OUT "
               "must not exist");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    if (verify_ && dequantize_.has_value()) {
      return UsageError("give only one of --verify and --dequantize");
    }
    if (verify_) {
      return Verify(console);
    }
    return dequantize_.has_value() ? WriteCheckpoint(console) : Describe(console);
  }

 private:
  static absl::Status Interrupted(const ByteProgress& reached, absl::string_view consequence) {
    return absl::CancelledError(
        absl::StrCat("interrupted at ", reached.step, ", ", FormatByteSize(reached.bytes_done),
                     " of ", FormatByteSize(reached.bytes_total), " done; ", consequence));
  }

  absl::StatusOr<ExitCode> Verify(Console& console) const {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    ByteProgress reached;
    absl::StatusOr<std::vector<std::string>> problems;
    {
      ProgressLine line(Clock::Real(), console.error_is_terminal(),
                        [&console](absl::string_view text) { console.NoteRaw(text); });
      const auto verify = HoldsPartition(directory_) ? VerifyPartition : VerifyContainer;
      problems = verify(
          directory_,
          [&line, &reached](const VerifyProgress& progress) {
            reached = {.step = progress.file,
                       .bytes_done = progress.bytes_done,
                       .bytes_total = progress.bytes_total};
            line.Update(reached);
          },
          interrupt->token());
    }
    if (absl::IsCancelled(problems.status())) {
      return Interrupted(reached, "what was not read yet may be damaged");
    }
    SHOAL_RETURN_IF_ERROR(problems.status());
    if (console.json()) {
      console.PrintJson({{"whole", problems->empty()}, {"problems", *problems}});
    } else if (problems->empty()) {
      console.Print(absl::StrCat(directory_, " is whole\n"));
    } else {
      console.Print(absl::StrCat(absl::StrJoin(*problems, "\n"), "\n"));
      console.Note(absl::StrCat("shoal: ", problems->size(),
                                problems->size() == 1 ? " problem" : " problems",
                                "; remove the directory and make it again, or copy the "
                                "damaged files again"));
    }
    return problems->empty() ? ExitCode::kOk : ExitCode::kDataDamaged;
  }

  absl::StatusOr<ExitCode> WriteCheckpoint(Console& console) const {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    ByteProgress reached;
    absl::Status status;
    {
      ProgressLine line(Clock::Real(), console.error_is_terminal(),
                        [&console](absl::string_view text) { console.NoteRaw(text); });
      status = Dequantize(
          directory_, *dequantize_,
          [&line, &reached](const ConvertProgress& progress) {
            reached = {.step = progress.step,
                       .bytes_done = progress.source_bytes_done,
                       .bytes_total = progress.source_bytes_total};
            line.Update(reached);
          },
          interrupt->token());
    }
    if (absl::IsCancelled(status)) {
      return Interrupted(reached, absl::StrCat(*dequantize_, " was not made"));
    }
    SHOAL_RETURN_IF_ERROR(status);
    if (console.json()) {
      console.PrintJson({{"checkpoint", *dequantize_}});
    } else {
      console.Print(absl::StrCat("wrote ", *dequantize_, "\n"));
    }
    return ExitCode::kOk;
  }

  absl::StatusOr<ExitCode> DescribePartition(Console& console) const {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Partition> partition, Partition::Open(directory_));
    if (console.json()) {
      console.PrintJson(PartitionJson(*partition));
    } else {
      console.Print(PartitionText(*partition));
    }
    return ExitCode::kOk;
  }

  static uint64_t TotalBytes(const std::vector<FileEntry>& files) {
    uint64_t total = 0;
    for (const FileEntry& file : files) {
      total += file.size_bytes;
    }
    return total;
  }

  static std::string PartitionText(const Partition& partition) {
    const Manifest& manifest = partition.manifest();
    std::string text = absl::StrFormat(
        "node:      %s\nidentity:  %s, of the container\npartition: version %d, %s in all\n"
        "model:     %s, %d layers with experts, %d experts of %d units in each, %s\n",
        partition.name(), manifest.identity, kPartitionVersion,
        FormatByteSize(TotalBytes(partition.files())), manifest.config.model_type,
        manifest.config.num_moe_layers(), manifest.config.moe.num_experts,
        manifest.unit_layout.num_units, ExpertCodecName(manifest.settings.experts));
    for (size_t i = 0; i < partition.slices().size(); ++i) {
      absl::StrAppendFormat(
          &text, "slice:     %s, %s a record, %s a layer\n", FormatSlice(partition.slices()[i]),
          FormatByteSize(partition.RecordBytes(i)), FormatByteSize(partition.BankBytes(i)));
    }
    return text;
  }

  static Json PartitionJson(const Partition& partition) {
    const Manifest& manifest = partition.manifest();
    Json json;
    json["name"] = partition.name();
    json["identity"] = manifest.identity;
    json["partition_version"] = kPartitionVersion;
    json["model_type"] = manifest.config.model_type;
    json["num_moe_layers"] = manifest.config.num_moe_layers();
    json["num_experts"] = manifest.config.moe.num_experts;
    json["num_units"] = manifest.unit_layout.num_units;
    json["experts"] = std::string(ExpertCodecName(manifest.settings.experts));
    json["total_bytes"] = TotalBytes(partition.files());
    json["slices"] = Json(SlicesToJson(partition.slices()));
    for (size_t i = 0; i < partition.slices().size(); ++i) {
      json["slices"][i]["record_bytes"] = partition.RecordBytes(i);
      json["slices"][i]["bank_bytes"] = partition.BankBytes(i);
    }
    json["files"] = FilesJson(partition.files());
    return json;
  }

  static Json FilesJson(const std::vector<FileEntry>& files) {
    Json json = Json::array();
    for (const FileEntry& file : files) {
      json.push_back(
          {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
    }
    return json;
  }

  absl::StatusOr<ExitCode> Describe(Console& console) const {
    if (HoldsPartition(directory_)) {
      return DescribePartition(console);
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    if (console.json()) {
      console.PrintJson(DescriptionJson(container->manifest()));
    } else {
      console.Print(Description(container->manifest()));
    }
    return ExitCode::kOk;
  }

  static std::string Description(const Manifest& manifest) {
    const ModelConfig& config = manifest.config;
    const ContainerSize size = SizeOf(manifest);
    std::string text = absl::StrFormat(
        "identity:  %s\nmade by:   %s, container version %d\n"
        "model:     %s, %d layers, %d with experts, hidden size %d, vocabulary %d\n"
        "experts:   %d a layer, %d a token, %s, %s a record\n"
        "trunk:     %s\nseed:      %d\n"
        "size:      %s in all, %s trunk, %s experts\n"
        "weights:   %d, %.3f bits each (experts %.3f)\n",
        manifest.identity, manifest.created_by, manifest.version, config.model_type,
        config.num_layers(), config.num_moe_layers(), config.hidden_size, config.vocab_size,
        config.moe.num_experts, config.moe.num_experts_per_token,
        ExpertCodecName(manifest.settings.experts),
        FormatByteSize(manifest.unit_layout.record_bytes), TrunkTypeName(manifest.settings.trunk),
        manifest.settings.seed, FormatByteSize(size.total_bytes), FormatByteSize(size.trunk_bytes),
        FormatByteSize(size.expert_bytes), size.trunk_weights + size.expert_weights,
        size.bits_per_weight(), size.expert_bits_per_weight());
    if (!manifest.banks.empty()) {
      absl::StrAppend(&text, "layer  relative error of the experts\n");
    }
    for (const BankEntry& bank : manifest.banks) {
      absl::StrAppendFormat(&text, "%5d  %.6f\n", bank.layer, bank.relative_error);
    }
    return text;
  }

  static Json DescriptionJson(const Manifest& manifest) {
    const ModelConfig& config = manifest.config;
    const ContainerSize size = SizeOf(manifest);
    Json json;
    json["identity"] = manifest.identity;
    json["created_by"] = manifest.created_by;
    json["container_version"] = manifest.version;
    json["model_type"] = config.model_type;
    json["num_layers"] = config.num_layers();
    json["num_moe_layers"] = config.num_moe_layers();
    json["hidden_size"] = config.hidden_size;
    json["vocab_size"] = config.vocab_size;
    json["max_position_embeddings"] = config.max_position_embeddings;
    json["num_experts"] = config.moe.num_experts;
    json["num_experts_per_token"] = config.moe.num_experts_per_token;
    json["experts"] = std::string(ExpertCodecName(manifest.settings.experts));
    json["trunk"] = std::string(TrunkTypeName(manifest.settings.trunk));
    json["seed"] = manifest.settings.seed;
    json["record_bytes"] = manifest.unit_layout.record_bytes;
    json["total_bytes"] = size.total_bytes;
    json["trunk_bytes"] = size.trunk_bytes;
    json["expert_bytes"] = size.expert_bytes;
    json["num_weights"] = size.trunk_weights + size.expert_weights;
    json["bits_per_weight"] = size.bits_per_weight();
    json["expert_bits_per_weight"] = size.expert_bits_per_weight();
    json["layers"] = Json::array();
    for (const BankEntry& bank : manifest.banks) {
      json["layers"].push_back({{"layer", bank.layer}, {"relative_error", bank.relative_error}});
    }
    json["files"] = FilesJson(manifest.files);
    return json;
  }

  std::string directory_;
  bool verify_ = false;
  std::optional<std::string> dequantize_;
};

}  // namespace

std::unique_ptr<Command> MakeInspectCommand() { return std::make_unique<InspectCommand>(); }

}  // namespace shoal

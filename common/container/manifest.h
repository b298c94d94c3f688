// manifest.json: everything a container says about itself. docs/format.md describes the fields.
#ifndef SHOAL_COMMON_CONTAINER_MANIFEST_H_
#define SHOAL_COMMON_CONTAINER_MANIFEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/unit_layout.h"
#include "common/model/model_config.h"
#include "common/model/tensor_names.h"
#include "kernels/matrix.h"

namespace shoal {

inline constexpr int kContainerVersion = 1;

// Names inside a container directory.
inline constexpr absl::string_view kManifestFile = "manifest.json";
inline constexpr absl::string_view kDigestsFile = "SHA256SUMS";  // covers every other file
inline constexpr absl::string_view kTrunkFile = "trunk.bin";
inline constexpr absl::string_view kCodebooksFile = "codebooks.bin";
inline constexpr absl::string_view kConfigFile = "config.json";
inline constexpr absl::string_view kSourceTensorsFile = "source_tensors.txt";
std::string BankFile(int64_t layer);  // "experts/layer-00012.bank"
std::string BankTreeFile(
    int64_t layer);  // "experts/layer-00012.tree": the digests of all units, 32 bytes each
// Whether a path is the trunk's or that of something in experts/: the files that are large.
bool IsPayloadFile(absl::string_view path);

// "f32", "bf16", "q8", "q4".
absl::string_view TrunkTypeName(TrunkType type);
absl::StatusOr<TrunkType> TrunkTypeFromName(absl::string_view name);

// What a container was made with.
struct ConvertSettings {
  ExpertCodec experts = ExpertCodec::kTcq3;
  TrunkType trunk = TrunkType::kQ8;
  uint64_t seed = 0;
};

// How a trunk tensor is stored: vectors as f32; the router lossless (bf16 where the source is, else
// f32); embedding and head at q8 where the rest is q4; everything else as chosen.
TrunkType StoredTrunkType(TrunkRole role, TrunkType chosen, bool source_is_bf16);

struct FileEntry {
  std::string path;  // relative, inside the directory
  uint64_t size_bytes = 0;
  std::string sha256;  // hex
};

// One tensor of trunk.bin: values, then (quantized types) scales, both aligned to 64 bytes.
struct TrunkEntry {
  std::string name;
  TrunkType type = TrunkType::kF32;
  std::vector<uint64_t> shape;       // [rows, cols], or [n] for a vector
  uint64_t offset_bytes = 0;         // of the values in trunk.bin
  uint64_t scales_offset_bytes = 0;  // relative to offset_bytes; 0 where the type has no scales
  uint64_t size_bytes = 0;           // values, padding and scales
  uint32_t crc32c = 0;               // of those size_bytes
};

// The entry of a tensor that starts at `offset_bytes` or the next multiple of 64: everything but
// the checksum. `shape` is [rows, cols] or [n]; its elements fit the limits of ParseModelConfig.
TrunkEntry LayOutTrunkEntry(const std::string& name, TrunkType type,
                            const std::vector<uint64_t>& shape, uint64_t offset_bytes);

// One MoE layer's bank: num_experts records, each layout.record_bytes.
struct BankEntry {
  int64_t layer = 0;
  // Hex; root of the hash tree over the unit digests, in order of expert and unit.
  std::string tree_root;
  double relative_error = 0;  // ||W - Wq|| / ||W|| over all experts of the layer; 0 for f32
};

struct Manifest {
  int version = kContainerVersion;
  std::string identity;  // hex; see ComputeIdentity
  std::string created_by;
  ConvertSettings settings;
  ModelConfig config;      // parsed from the container's config.json
  UnitLayout unit_layout;  // valid where the model has MoE layers
  std::string source_fingerprint;
  std::string source_tensors_sha256;
  std::string codebooks_sha256;  // empty where the codec has none
  std::vector<FileEntry> files;  // all but manifest.json and SHA256SUMS
  std::vector<TrunkEntry> trunk;
  std::vector<BankEntry> banks;  // by increasing layer

  // All units of all experts; empty in a model without MoE layers.
  ExpertSlice whole_experts() const;
  const TrunkEntry* FindTrunk(absl::string_view name) const;
  const FileEntry* FindFile(absl::string_view path) const;
};

// SHA-256 (hex) of config, source tensor digests, codec, settings, seed and codebooks: the same for
// every part of one conversion, also for a part converted alone.
std::string ComputeIdentity(absl::string_view config_json, const Manifest& manifest);

std::string SerializeManifest(const Manifest& manifest);

// Parses and checks manifest.json against itself and `config_json`: version, identity, every size
// against the sizes that follow from the config (trunk shapes, bank sizes, unit layout), ranges
// inside files, no path that leaves the directory, no more files than the model has, none but trunk
// and banks above 256 MiB. `name` is the manifest's path, for messages.
//   UNIMPLEMENTED      a version, codec or trunk type this build does not have, named
//   INVALID_ARGUMENT   malformed; names the field
//   DATA_LOSS          identity or sizes contradict
absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view config_json,
                                       absl::string_view name);

// Root of the hash tree over unit digests (RFC 6962 shape: leaf = SHA-256(0x00 || digest), node =
// SHA-256(0x01 || left || right), split at the largest power of two below n). `leaves` is n times
// 32 bytes (what is left at its end counts as one more); empty gives SHA-256 of nothing.
std::string TreeRoot(absl::string_view leaves);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_MANIFEST_H_

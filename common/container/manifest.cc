#include "common/container/manifest.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/io/json_fields.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "kernels/rvq.h"

namespace shoal {
namespace {

constexpr char kFormatName[] = "shoal-container";
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

// Beside trunk, codebooks and banks a container has a handful of files: configs, tokenizer, digests
// of the source. The largest we know, source_tensors.txt of Kimi K3, has about 100 MB. Both limits
// bound what a hostile manifest makes us do when the container is opened.
constexpr size_t kMaxOtherFiles = 64;
constexpr uint64_t kMaxOtherFileBytes = uint64_t{256} << 20;

uint64_t AlignSection(uint64_t bytes) { return AlignUp(bytes, kSectionAlignment); }

// A path of the manifest must stay inside the directory and look like what we write.
bool IsPlainPath(const std::string& path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ||
           c == '/';
  });
  if (!plain || path.size() > 255) {
    return false;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](absl::string_view part) {
    return part.empty() || part == "." || part == "..";
  });
}

absl::Status ReadFiles(JsonFields& fields, Manifest& manifest) {
  std::set<std::string> seen;
  const Json& array = fields.Array("files");
  const size_t limit = 2 * static_cast<size_t>(manifest.config.num_moe_layers()) + kMaxOtherFiles;
  if (array.size() > limit) {
    return absl::InvalidArgumentError(absl::StrCat(fields.source(), ": files has ", array.size(),
                                                   " entries; a container of this model has at ",
                                                   "most ", limit));
  }
  for (const Json& json : array) {
    JsonFields file(json, absl::StrCat(fields.source(), ": files"));
    FileEntry entry;
    entry.path = file.String("path");
    entry.size_bytes = static_cast<uint64_t>(file.Int("size_bytes", 0, kMaxInt));
    entry.sha256 = file.Digest("sha256");
    SHOAL_RETURN_IF_ERROR(file.status());
    if (!IsPlainPath(entry.path) || entry.path == kManifestFile || entry.path == kDigestsFile ||
        !seen.insert(entry.path).second) {
      return absl::InvalidArgumentError(absl::StrCat(
          fields.source(),
          ": files: path is not acceptable or named twice: ", Brief(Json(entry.path))));
    }
    manifest.files.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status ReadSettings(JsonFields& fields, Manifest& manifest) {
  JsonFields settings(fields.Object("settings"), absl::StrCat(fields.source(), ": settings"));
  const std::string experts = settings.String("experts");
  const std::string trunk = settings.String("trunk");
  manifest.settings.seed = static_cast<uint64_t>(settings.Int("seed", 0, kMaxInt));
  SHOAL_RETURN_IF_ERROR(fields.status());
  SHOAL_RETURN_IF_ERROR(settings.status());
  SHOAL_ASSIGN_OR_RETURN(manifest.settings.experts, ExpertCodecFromName(experts));
  SHOAL_ASSIGN_OR_RETURN(manifest.settings.trunk, TrunkTypeFromName(trunk));
  return absl::OkStatus();
}

// The trunk's entries must be exactly those that follow from the config and the settings; only
// checksums (and the router's type, which follows the source's) are taken from the file.
absl::Status ReadTrunk(JsonFields& fields, Manifest& manifest) {
  const std::vector<TrunkTensor> tensors = TrunkTensors(manifest.config);
  const Json& array = fields.Array("trunk");
  SHOAL_RETURN_IF_ERROR(fields.status());
  if (array.size() != tensors.size()) {
    return absl::DataLossError(absl::StrCat(fields.source(), ": trunk has ", array.size(),
                                            " tensors; the model's config calls for ",
                                            tensors.size()));
  }
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TrunkTensor& tensor = tensors[i];
    JsonFields json(array[i], absl::StrCat(fields.source(), ": trunk: ", tensor.name));
    const std::string name = json.String("name");
    const std::string type_name = json.String("type");
    const int64_t offset_bytes = json.Int("offset_bytes", 0, kMaxInt);
    const int64_t size_bytes = json.Int("size_bytes", 0, kMaxInt);
    const std::string crc = json.String("crc32c");
    if (json.Array("shape") != Json(tensor.shape)) {
      json.Fail("shape", absl::StrCat("is not [", absl::StrJoin(tensor.shape, ", "), "]"));
    }
    SHOAL_RETURN_IF_ERROR(json.status());
    SHOAL_ASSIGN_OR_RETURN(const TrunkType type, TrunkTypeFromName(type_name));
    const bool bf16 = type == TrunkType::kBF16;
    TrunkEntry entry = LayOutTrunkEntry(tensor.name, type, tensor.shape, offset);
    if (name != tensor.name ||
        type != StoredTrunkType(tensor.role, manifest.settings.trunk, bf16) ||
        static_cast<uint64_t>(offset_bytes) != entry.offset_bytes ||
        static_cast<uint64_t>(size_bytes) != entry.size_bytes) {
      return absl::DataLossError(absl::StrCat(
          json.source(), ": the manifest says ", Brief(Json(name)), " ", type_name, " at ",
          offset_bytes, ", ", size_bytes, " bytes; config and settings call for ", tensor.name,
          " at ", entry.offset_bytes, ", ", entry.size_bytes, " bytes"));
    }
    // SimpleHexAtoi alone would take a sign or a prefix.
    if (crc.size() != 8 || !std::all_of(crc.begin(), crc.end(), absl::ascii_isxdigit) ||
        !absl::SimpleHexAtoi(crc, &entry.crc32c)) {
      json.Fail("crc32c", "is not eight hexadecimal digits");
      return json.status();
    }
    offset = entry.offset_bytes + entry.size_bytes;
    manifest.trunk.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

absl::Status ReadBanks(JsonFields& fields, Manifest& manifest) {
  const std::vector<int64_t> layers = manifest.config.moe_layers();
  const Json& array = fields.Array("banks");
  SHOAL_RETURN_IF_ERROR(fields.status());
  if (array.size() != layers.size()) {
    return absl::DataLossError(absl::StrCat(fields.source(), ": banks has ", array.size(),
                                            " entries; the model has ", layers.size(),
                                            " layers with experts"));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    JsonFields json(array[i], absl::StrCat(fields.source(), ": banks"));
    BankEntry bank;
    bank.layer = json.Int("layer", layers[i], layers[i]);
    bank.tree_root = json.Digest("tree_root");
    bank.relative_error = json.Number("relative_error", 0, 1e9);
    SHOAL_RETURN_IF_ERROR(json.status());
    manifest.banks.push_back(std::move(bank));
  }
  return absl::OkStatus();
}

absl::Status ExpectFile(const Manifest& manifest, absl::string_view source, const std::string& path,
                        uint64_t size_bytes) {
  const FileEntry* file = manifest.FindFile(path);
  if (file == nullptr) {
    return absl::DataLossError(absl::StrCat(source, ": files does not name ", path));
  }
  if (file->size_bytes != size_bytes) {
    return absl::DataLossError(absl::StrCat(source, ": files: ", path, " has ", file->size_bytes,
                                            " bytes; config and settings call for ", size_bytes));
  }
  return absl::OkStatus();
}

// Every large file's size follows from the config, the others are small.
absl::Status CheckFiles(const Manifest& manifest, absl::string_view source) {
  for (const FileEntry& file : manifest.files) {
    if (!IsPayloadFile(file.path) && file.size_bytes > kMaxOtherFileBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          source, ": files: ", file.path, " has ", file.size_bytes, " bytes; beside trunk and ",
          "banks a file has at most ", kMaxOtherFileBytes));
    }
  }
  const TrunkEntry& last = manifest.trunk.back();
  SHOAL_RETURN_IF_ERROR(
      ExpectFile(manifest, source, std::string(kTrunkFile), last.offset_bytes + last.size_bytes));
  const UnitLayout& layout = manifest.unit_layout;
  const auto num_experts = static_cast<uint64_t>(manifest.config.moe.num_experts);
  for (const BankEntry& bank : manifest.banks) {
    SHOAL_RETURN_IF_ERROR(
        ExpectFile(manifest, source, BankFile(bank.layer), num_experts * layout.record_bytes));
    SHOAL_RETURN_IF_ERROR(
        ExpectFile(manifest, source, BankTreeFile(bank.layer),
                   num_experts * static_cast<uint64_t>(layout.num_units) * Sha256Digest().size()));
  }
  if (HasCodebooks(manifest.settings.experts) && !manifest.banks.empty()) {
    SHOAL_RETURN_IF_ERROR(ExpectFile(manifest, source, std::string(kCodebooksFile),
                                     manifest.banks.size() * sizeof(LayerCodebooks)));
  }
  // Nothing else may pass for a payload file, whose digest is not checked when it is opened.
  const auto num_payload = static_cast<size_t>(
      std::count_if(manifest.files.begin(), manifest.files.end(),
                    [](const FileEntry& file) { return IsPayloadFile(file.path); }));
  if (num_payload != 1 + 2 * manifest.banks.size()) {
    return absl::DataLossError(absl::StrCat(source, ": files names ", num_payload,
                                            " files as trunk or in experts/; the model has ",
                                            1 + 2 * manifest.banks.size()));
  }
  return absl::OkStatus();
}

// The files whose digests are part of the identity must be the ones that `files` lists.
absl::Status CheckIdentityFiles(const Manifest& manifest, absl::string_view config_json,
                                absl::string_view source) {
  std::vector<std::pair<absl::string_view, std::string>> expected = {
      {kConfigFile, ToHex(Sha256::Of(config_json))},
      {kSourceTensorsFile, manifest.source_tensors_sha256}};
  if (!manifest.codebooks_sha256.empty()) {
    expected.emplace_back(kCodebooksFile, manifest.codebooks_sha256);
  }
  for (const auto& [path, sha256] : expected) {
    const FileEntry* file = manifest.FindFile(path);
    if (file == nullptr) {
      return absl::DataLossError(absl::StrCat(source, ": files does not name ", path));
    }
    if (file->sha256 != sha256) {
      return absl::DataLossError(absl::StrCat(source, ": files: sha256 of ", path,
                                              " is not the one the identity is made of"));
    }
  }
  return absl::OkStatus();
}

Json TrunkJson(const TrunkEntry& entry) {
  return {{"name", entry.name},
          {"type", std::string(TrunkTypeName(entry.type))},
          {"shape", entry.shape},
          {"offset_bytes", entry.offset_bytes},
          {"size_bytes", entry.size_bytes},
          {"crc32c", absl::StrFormat("%08x", entry.crc32c)}};
}

}  // namespace

std::string BankFile(int64_t layer) { return absl::StrFormat("experts/layer-%05d.bank", layer); }
std::string BankTreeFile(int64_t layer) {
  return absl::StrFormat("experts/layer-%05d.tree", layer);
}

bool IsPayloadFile(absl::string_view path) {
  return path == kTrunkFile || absl::StartsWith(path, "experts/");
}

absl::string_view TrunkTypeName(TrunkType type) {
  switch (type) {
    case TrunkType::kF32:
      return "f32";
    case TrunkType::kBF16:
      return "bf16";
    case TrunkType::kQ8:
      return "q8";
    case TrunkType::kQ4:
      return "q4";
  }
  return "";
}

absl::StatusOr<TrunkType> TrunkTypeFromName(absl::string_view name) {
  for (const TrunkType type : {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8, TrunkType::kQ4}) {
    if (name == TrunkTypeName(type)) {
      return type;
    }
  }
  return absl::UnimplementedError(absl::StrCat("trunk type ", Brief(Json(std::string(name))),
                                               "; this build has q4, q8, bf16 and f32"));
}

TrunkType StoredTrunkType(TrunkRole role, TrunkType chosen, bool source_is_bf16) {
  switch (role) {
    case TrunkRole::kVector:
      return TrunkType::kF32;
    case TrunkRole::kRouter:
      return source_is_bf16 ? TrunkType::kBF16 : TrunkType::kF32;
    case TrunkRole::kEmbedding:
    case TrunkRole::kHead:
      return chosen == TrunkType::kQ4 ? TrunkType::kQ8 : chosen;
    case TrunkRole::kProjection:
    case TrunkRole::kKeyUpProj:
    case TrunkRole::kValueUpProj:
      return chosen;
  }
  return chosen;
}

TrunkEntry LayOutTrunkEntry(const std::string& name, TrunkType type,
                            const std::vector<uint64_t>& shape, uint64_t offset_bytes) {
  TrunkEntry entry;
  entry.name = name;
  entry.type = type;
  entry.shape = shape;
  entry.offset_bytes = AlignSection(offset_bytes);
  uint64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    rows *= shape[i];
  }
  const auto cols = static_cast<int64_t>(shape.back());
  entry.size_bytes = rows * static_cast<uint64_t>(RowValueBytes(type, cols));
  if (const int64_t scales = ScalesPerRow(type, cols); scales > 0) {
    entry.scales_offset_bytes = AlignSection(entry.size_bytes);
    entry.size_bytes =
        entry.scales_offset_bytes + rows * static_cast<uint64_t>(scales) * sizeof(uint16_t);
  }
  return entry;
}

ExpertSlice Manifest::whole_experts() const {
  return banks.empty() ? ExpertSlice()
                       : ExpertSlice{{0, unit_layout.num_units}, {0, config.moe.num_experts}};
}

const TrunkEntry* Manifest::FindTrunk(absl::string_view name) const {
  const auto it = std::find_if(trunk.begin(), trunk.end(),
                               [name](const TrunkEntry& entry) { return entry.name == name; });
  return it == trunk.end() ? nullptr : &*it;
}

const FileEntry* Manifest::FindFile(absl::string_view path) const {
  const auto it = std::find_if(files.begin(), files.end(),
                               [path](const FileEntry& entry) { return entry.path == path; });
  return it == files.end() ? nullptr : &*it;
}

std::string ComputeIdentity(absl::string_view config_json, const Manifest& manifest) {
  const std::string text =
      absl::StrCat("shoal container identity ", kContainerVersion, "\nconfig ",
                   ToHex(Sha256::Of(config_json)), "\nsource ", manifest.source_tensors_sha256,
                   "\nexperts ", ExpertCodecName(manifest.settings.experts), "\ntrunk ",
                   TrunkTypeName(manifest.settings.trunk), "\nseed ", manifest.settings.seed,
                   "\ncodebooks ", manifest.codebooks_sha256, "\n");
  return ToHex(Sha256::Of(text));
}

std::string SerializeManifest(const Manifest& manifest) {
  Json json;
  json["format"] = kFormatName;
  json["version"] = manifest.version;
  json["identity"] = manifest.identity;
  json["created_by"] = manifest.created_by;
  json["settings"] = {{"experts", std::string(ExpertCodecName(manifest.settings.experts))},
                      {"trunk", std::string(TrunkTypeName(manifest.settings.trunk))},
                      {"seed", manifest.settings.seed}};
  json["source_fingerprint"] = manifest.source_fingerprint;
  json["source_tensors_sha256"] = manifest.source_tensors_sha256;
  json["codebooks_sha256"] = manifest.codebooks_sha256;
  json["files"] = Json::array();
  for (const FileEntry& file : manifest.files) {
    json["files"].push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  json["trunk"] = Json::array();
  for (const TrunkEntry& entry : manifest.trunk) {
    json["trunk"].push_back(TrunkJson(entry));
  }
  json["banks"] = Json::array();
  for (const BankEntry& bank : manifest.banks) {
    json["banks"].push_back({{"layer", bank.layer},
                             {"tree_root", bank.tree_root},
                             {"relative_error", bank.relative_error}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text, absl::string_view config_json,
                                       absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, name));
  JsonFields fields(json, std::string(name));
  fields.CheckFormat(kFormatName, kContainerVersion);
  SHOAL_RETURN_IF_ERROR(fields.status());
  Manifest manifest;
  manifest.identity = fields.Digest("identity");
  manifest.created_by = fields.String("created_by");
  manifest.source_fingerprint = fields.String("source_fingerprint");
  manifest.source_tensors_sha256 = fields.Digest("source_tensors_sha256");
  manifest.codebooks_sha256 = fields.Digest("codebooks_sha256", /*may_be_empty=*/true);
  SHOAL_RETURN_IF_ERROR(ReadSettings(fields, manifest));
  // The neighbour of the manifest.
  const std::string config_name = absl::StrCat(name.substr(0, name.rfind('/') + 1), kConfigFile);
  SHOAL_ASSIGN_OR_RETURN(manifest.config, ParseModelConfig(config_json, config_name));
  if (manifest.config.num_moe_layers() > 0) {
    SHOAL_ASSIGN_OR_RETURN(manifest.unit_layout,
                           UnitLayout::Make(manifest.settings.experts, manifest.config.hidden_size,
                                            manifest.config.moe.moe_intermediate_size));
  }
  SHOAL_RETURN_IF_ERROR(ReadFiles(fields, manifest));
  SHOAL_RETURN_IF_ERROR(ReadTrunk(fields, manifest));
  SHOAL_RETURN_IF_ERROR(ReadBanks(fields, manifest));
  SHOAL_RETURN_IF_ERROR(fields.status());
  SHOAL_RETURN_IF_ERROR(CheckFiles(manifest, name));
  SHOAL_RETURN_IF_ERROR(CheckIdentityFiles(manifest, config_json, name));
  if (ComputeIdentity(config_json, manifest) != manifest.identity) {
    return absl::DataLossError(absl::StrCat(
        name, ": identity differs from what config, source, settings and codebooks give"));
  }
  return manifest;
}

}  // namespace shoal

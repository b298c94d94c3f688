#include "coordinator/convert/ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

using Json = nlohmann::json;

// A line of a layer of 896 experts is about 200 kB; this is far beyond any model.
constexpr uint64_t kMaxLedgerBytes = uint64_t{4} << 30;

Json ToJson(const FileEntry& file) {
  return {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}};
}

Json ToJson(const std::vector<Sha256Digest>& digests) {
  Json list = Json::array();
  for (const Sha256Digest& digest : digests) {
    list.push_back(ToHex(digest));
  }
  return list;
}

std::string BytesToHex(const void* data, size_t size) {
  return absl::BytesToHexString(absl::string_view(static_cast<const char*>(data), size));
}

// Readers of one field: false where it is missing or of another type.
bool Get(const Json& object, const char* key, std::string& out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) {
    return false;
  }
  out = it->get<std::string>();
  return true;
}

bool Get(const Json& object, const char* key, uint64_t& out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) {
    return false;
  }
  out = it->get<uint64_t>();
  return true;
}

bool Get(const Json& object, const char* key, double& out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_number()) {
    return false;
  }
  out = it->get<double>();
  return true;
}

bool Get(const Json& object, const char* key, FileEntry& out) {
  const auto it = object.find(key);
  return it != object.end() && it->is_object() && Get(*it, "path", out.path) &&
         Get(*it, "size_bytes", out.size_bytes) && Get(*it, "sha256", out.sha256);
}

bool Get(const Json& object, const char* key, std::vector<Sha256Digest>& out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) {
    return false;
  }
  for (const Json& element : *it) {
    const auto digest = element.is_string() ? DigestFromHex(element.get<std::string>())
                                            : std::optional<Sha256Digest>();
    if (!digest) {
      return false;
    }
    out.push_back(*digest);
  }
  return true;
}

bool Get(const Json& object, const char* key, std::vector<uint32_t>& out) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) {
    return false;
  }
  for (const Json& element : *it) {
    if (!element.is_number_unsigned() || element.get<uint64_t>() > UINT32_MAX) {
      return false;
    }
    out.push_back(element.get<uint32_t>());
  }
  return true;
}

std::optional<LedgerHeader> HeaderFromJson(const Json& json) {
  LedgerHeader header;
  std::string experts;
  std::string trunk;
  if (!Get(json, "created_by", header.created_by) || !Get(json, "experts", experts) ||
      !Get(json, "trunk", trunk) || !Get(json, "seed", header.settings.seed) ||
      !Get(json, "source_fingerprint", header.source_fingerprint)) {
    return std::nullopt;
  }
  const auto codec = ExpertCodecFromName(experts);
  const auto type = TrunkTypeFromName(trunk);
  if (!codec.ok() || !type.ok()) {
    return std::nullopt;
  }
  header.settings.experts = *codec;
  header.settings.trunk = *type;
  return header;
}

std::optional<LedgerTrunk> TrunkFromJson(const Json& json) {
  LedgerTrunk trunk;
  if (!Get(json, "trunk", trunk.file) || !Get(json, "crc32c", trunk.crcs) ||
      !Get(json, "relative_error", trunk.relative_error) ||
      !Get(json, "source_sha256", trunk.source_digests)) {
    return std::nullopt;
  }
  return trunk;
}

std::optional<LedgerLayer> LayerFromJson(const Json& json) {
  LedgerLayer layer;
  uint64_t index = 0;
  if (!Get(json, "layer", index) || index > INT32_MAX || !Get(json, "bank", layer.bank) ||
      !Get(json, "tree", layer.tree) || !Get(json, "tree_root", layer.tree_root) ||
      !Get(json, "relative_error", layer.relative_error) ||
      !Get(json, "source_sha256", layer.source_digests)) {
    return std::nullopt;
  }
  layer.layer = static_cast<int64_t>(index);
  if (json.contains("codebooks")) {
    std::string hex;
    if (!Get(json, "codebooks", hex) || hex.size() != 2 * sizeof(LayerCodebooks) ||
        hex.find_first_not_of("0123456789abcdef") != std::string::npos) {
      return std::nullopt;
    }
    const std::string bytes = absl::HexStringToBytes(hex);
    std::memcpy(&layer.codebooks.emplace(), bytes.data(), sizeof(LayerCodebooks));
  }
  return layer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  auto ledger = std::unique_ptr<Ledger>(new Ledger(path));
  absl::StatusOr<std::string> text = ReadTextFile(path, kMaxLedgerBytes);
  if (absl::IsNotFound(text.status())) {
    return ledger;
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_RETURN_IF_ERROR(ledger->Parse(*text));
  return ledger;
}

absl::Status Ledger::Parse(const std::string& text) {
  size_t good = 0;
  for (int line_number = 1; good < text.size(); ++line_number) {
    const size_t end = text.find('\n', good);
    if (end == std::string::npos || !ParseLine(text.substr(good, end - good))) {
      const bool last = end == std::string::npos || end + 1 == text.size();
      if (!last || !header_) {
        return absl::DataLossError(
            absl::StrCat(path_, ": line ", line_number,
                         " is damaged; remove this directory to start the conversion again"));
      }
      break;
    }
    good = end + 1;
  }
  if (text.empty()) {
    return absl::OkStatus();
  }
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd_.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", path_));
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(good)) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("shorten ", path_));
  }
  return SyncFile(fd_, path_);
}

bool Ledger::ParseLine(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return false;
  }
  if (!header_) {
    header_ = HeaderFromJson(json);
    return header_.has_value();
  }
  if (json.contains("trunk")) {
    const std::optional<LedgerTrunk> trunk = TrunkFromJson(json);
    if (trunk) {
      trunk_ = trunk;
    }
    return trunk.has_value();
  }
  const std::optional<LedgerLayer> layer = LayerFromJson(json);
  if (layer) {
    layers_.insert_or_assign(layer->layer, *layer);
  }
  return layer.has_value();
}

absl::Status Ledger::Start(const LedgerHeader& header) {
  const Json json = {{"created_by", header.created_by},
                     {"experts", std::string(ExpertCodecName(header.settings.experts))},
                     {"trunk", std::string(TrunkTypeName(header.settings.trunk))},
                     {"seed", header.settings.seed},
                     {"source_fingerprint", header.source_fingerprint}};
  // Written whole or not at all: a ledger without its first line could not say whose files lie
  // beside it.
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path_, json.dump() + "\n"));
  header_ = header;
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  return fd_.valid() ? absl::OkStatus() : ErrnoToStatus(errno, absl::StrCat("open ", path_));
}

absl::Status Ledger::Record(const LedgerTrunk& trunk) {
  const Json json = {{"trunk", ToJson(trunk.file)},
                     {"crc32c", trunk.crcs},
                     {"relative_error", trunk.relative_error},
                     {"source_sha256", ToJson(trunk.source_digests)}};
  SHOAL_RETURN_IF_ERROR(Append(json.dump()));
  trunk_ = trunk;
  return absl::OkStatus();
}

absl::Status Ledger::Record(const LedgerLayer& layer) {
  Json json = {{"layer", layer.layer},
               {"bank", ToJson(layer.bank)},
               {"tree", ToJson(layer.tree)},
               {"tree_root", layer.tree_root},
               {"relative_error", layer.relative_error},
               {"source_sha256", ToJson(layer.source_digests)}};
  if (layer.codebooks) {
    json["codebooks"] = BytesToHex(&*layer.codebooks, sizeof(LayerCodebooks));
  }
  SHOAL_RETURN_IF_ERROR(Append(json.dump()));
  layers_.insert_or_assign(layer.layer, layer);
  return absl::OkStatus();
}

absl::Status Ledger::Append(std::string line) {
  line += '\n';
  SHOAL_RETURN_IF_ERROR(WriteAll(fd_, path_, std::as_bytes(std::span(line.data(), line.size()))));
  return SyncFile(fd_, path_);
}

}  // namespace shoal

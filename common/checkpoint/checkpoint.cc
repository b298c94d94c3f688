#include "common/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/checked_range.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the safetensors library itself
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;
constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";

std::string ShapeText(std::span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// Shapes that differ only in ones hold the same elements in the same order ([1, 1, H, 1] and [H]).
std::vector<uint64_t> WithoutOnes(std::span<const uint64_t> shape) {
  std::vector<uint64_t> result;
  std::copy_if(shape.begin(), shape.end(), std::back_inserter(result),
               [](uint64_t size) { return size != 1; });
  return result;
}

// Name and sizes come first, so that no two checkpoints feed the digest the same bytes.
void HashPart(Sha256& hash, absl::string_view file, uint64_t file_bytes, absl::string_view text) {
  hash.Update(absl::StrCat(file.size(), " ", file, " ", file_bytes, " ", text.size(), "\n"));
  hash.Update(text);
}

}  // namespace

struct Checkpoint::Impl {
  std::string directory;
  std::string config_json;
  std::string fingerprint;
  absl::flat_hash_map<std::string, TensorInfo> tensors;
  absl::flat_hash_map<std::string, std::string> unreadable;  // name -> dtype
  std::map<std::string, UniqueFd> files;

  std::string PathOf(absl::string_view file) const { return absl::StrCat(directory, "/", file); }

  // Tensor names by shard, from the index; NOT_FOUND where there is none.
  absl::StatusOr<std::map<std::string, std::set<std::string>>> ReadIndex(Sha256& hash);
  absl::Status CheckShard(const std::string& file, const SafetensorsHeader& header,
                          const std::set<std::string>& expected) const;
  absl::StatusOr<SafetensorsHeader> ReadHeader(const std::string& file, Sha256& hash);
};

absl::StatusOr<std::map<std::string, std::set<std::string>>> Checkpoint::Impl::ReadIndex(
    Sha256& hash) {
  const std::string path = PathOf(kIndexFile);
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  HashPart(hash, kIndexFile, text.size(), text);
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path));
  JsonFields fields(json, path);
  const Json& weight_map = fields.Object("weight_map");
  if (weight_map.empty()) {
    fields.Fail("weight_map", "names no tensor");
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  std::map<std::string, std::set<std::string>> shards;
  for (const auto& [name, value] : weight_map.items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (file.empty() || file.find('/') != std::string::npos || file == "." || file == ".." ||
        file.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": weight_map of tensor ", Brief(Json(name)), " is ", Brief(value),
                       "; the name of a file in the checkpoint's directory is expected"));
    }
    shards[file].insert(name);
  }
  return shards;
}

absl::StatusOr<SafetensorsHeader> Checkpoint::Impl::ReadHeader(const std::string& file,
                                                               Sha256& hash) {
  const std::string path = PathOf(file);
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(fd, path));
  uint64_t header_bytes = 0;
  if (file_bytes < sizeof(header_bytes)) {
    return absl::DataLossError(absl::StrCat(path, " has ", file_bytes,
                                            " bytes, less than a safetensors file begins with"));
  }
  SHOAL_RETURN_IF_ERROR(
      ReadExactAt(fd, path, 0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (!RangeFits(sizeof(header_bytes), header_bytes, file_bytes)) {
    return absl::DataLossError(absl::StrCat(path, ": header length ", header_bytes,
                                            " is larger than the file of ", file_bytes,
                                            " bytes; it is truncated or no safetensors file"));
  }
  if (header_bytes > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": header length ", header_bytes,
                                                   "; at most ", kMaxHeaderBytes,
                                                   " bytes are accepted"));
  }
  std::string text(header_bytes, '\0');
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, sizeof(header_bytes),
                                    std::as_writable_bytes(std::span(text.data(), text.size()))));
  HashPart(hash, file, file_bytes, text);
  const uint64_t data_offset = sizeof(header_bytes) + header_bytes;
  SHOAL_ASSIGN_OR_RETURN(SafetensorsHeader header,
                         ParseSafetensorsHeader(text, file_bytes - data_offset, path));
  for (auto& [name, info] : header.tensors) {
    info.file = file;
    info.offset_bytes += data_offset;
  }
  files[file] = std::move(fd);
  return header;
}

absl::Status Checkpoint::Impl::CheckShard(const std::string& file, const SafetensorsHeader& header,
                                          const std::set<std::string>& expected) const {
  for (const std::string& name : expected) {
    if (!header.tensors.contains(name) && !header.unreadable.contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat(PathOf(kIndexFile), " says tensor ",
                                                     Brief(Json(name)), " is in ", file,
                                                     ", which does not hold it"));
    }
  }
  const auto unexpected = [&](const std::string& name) -> absl::Status {
    if (expected.contains(name)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(PathOf(file), " holds tensor ",
                                                   Brief(Json(name)), ", which ", kIndexFile,
                                                   " does not place there"));
  };
  for (const auto& [name, info] : header.tensors) {
    SHOAL_RETURN_IF_ERROR(unexpected(name));
  }
  for (const auto& [name, dtype] : header.unreadable) {
    SHOAL_RETURN_IF_ERROR(unexpected(name));
  }
  return absl::OkStatus();
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::~Checkpoint() = default;
const std::string& Checkpoint::directory() const { return impl_->directory; }
const std::string& Checkpoint::config_json() const { return impl_->config_json; }
const std::string& Checkpoint::fingerprint() const { return impl_->fingerprint; }
const absl::flat_hash_map<std::string, TensorInfo>& Checkpoint::tensors() const {
  return impl_->tensors;
}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& directory) {
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  absl::StatusOr<std::string> config = ReadTextFile(impl->PathOf("config.json"), kMaxConfigBytes);
  if (absl::IsNotFound(config.status())) {
    return Annotate(config.status(),
                    absl::StrCat(impl->directory, " is no Hugging Face checkpoint"));
  }
  SHOAL_ASSIGN_OR_RETURN(impl->config_json, std::move(config));
  Sha256 hash;
  HashPart(hash, "config.json", impl->config_json.size(), impl->config_json);
  auto shards = impl->ReadIndex(hash);
  const bool indexed = !absl::IsNotFound(shards.status());
  if (!indexed) {
    shards = std::map<std::string, std::set<std::string>>{{kSingleFile, {}}};
  }
  SHOAL_RETURN_IF_ERROR(shards.status());
  for (const auto& [file, names] : *shards) {
    auto header = impl->ReadHeader(file, hash);
    if (absl::IsNotFound(header.status())) {
      return Annotate(header.status(), indexed
                                           ? absl::StrCat(impl->PathOf(kIndexFile), " names ", file)
                                           : absl::StrCat(impl->directory, " has neither ",
                                                          kIndexFile, " nor one file of weights"));
    }
    SHOAL_RETURN_IF_ERROR(header.status());
    if (indexed) {
      SHOAL_RETURN_IF_ERROR(impl->CheckShard(file, *header, names));
    }
    // Names cannot collide: a header's and the index's are unique, and a shard holds only those
    // that the index places there.
    impl->tensors.merge(header->tensors);
    impl->unreadable.merge(header->unreadable);
  }
  impl->fingerprint = ToHex(hash.Finish());
  return std::unique_ptr<Checkpoint>(new Checkpoint(std::move(impl)));
}

absl::StatusOr<TensorInfo> Checkpoint::Find(absl::string_view name,
                                            std::span<const uint64_t> shape) const {
  const auto it = impl_->tensors.find(name);
  if (it == impl_->tensors.end()) {
    if (const auto other = impl_->unreadable.find(name); other != impl_->unreadable.end()) {
      return absl::UnimplementedError(absl::StrCat(impl_->directory, ": tensor ", name,
                                                   " has dtype ", Brief(Json(other->second)),
                                                   "; F32, F16 and BF16 are read"));
    }
    return absl::NotFoundError(absl::StrCat(
        impl_->directory, ": tensor ", name, " is missing; searched ",
        absl::StrJoin(impl_->files, ", ",
                      [](std::string* out, const auto& file) { *out += file.first; })));
  }
  if (WithoutOnes(it->second.shape) != WithoutOnes(shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat(impl_->directory, "/", it->second.file, ": tensor ", name, " has shape ",
                     ShapeText(it->second.shape), "; config.json calls for ", ShapeText(shape)));
  }
  return it->second;
}

absl::Status Checkpoint::ReadRaw(const TensorInfo& info, std::span<std::byte> out) const {
  const auto it = impl_->files.find(info.file);
  if (it == impl_->files.end() || out.size() != info.size_bytes) {
    return absl::InternalError(absl::StrCat("read of a tensor that is not of ", impl_->directory));
  }
  return ReadExactAt(it->second, impl_->PathOf(info.file), info.offset_bytes, out);
}

absl::Status Checkpoint::ReadFloat(absl::string_view name, const TensorInfo& info,
                                   std::span<float> out) const {
  if (out.size() != info.num_elements()) {
    return absl::InternalError(absl::StrCat("read of tensor ", name, " of ", info.num_elements(),
                                            " elements into ", out.size()));
  }
  // In pieces, so that an embedding of gigabytes does not need its raw bytes in memory as well.
  constexpr size_t kPieceElements = size_t{1} << 19;
  const uint64_t element_bytes = DTypeBytes(info.dtype);
  std::vector<std::byte> raw(std::min(out.size(), kPieceElements) * element_bytes);
  for (size_t begin = 0; begin < out.size(); begin += kPieceElements) {
    const std::span<float> piece = out.subspan(begin, std::min(out.size() - begin, kPieceElements));
    TensorInfo part = info;
    part.offset_bytes += begin * element_bytes;
    part.size_bytes = piece.size() * element_bytes;
    const std::span<std::byte> part_raw = std::span(raw).first(part.size_bytes);
    SHOAL_RETURN_IF_ERROR(Annotate(ReadRaw(part, part_raw), absl::StrCat("tensor ", name)));
    WidenToFloat(info.dtype, part_raw, piece);
    const auto bad =
        std::find_if(piece.begin(), piece.end(), [](float value) { return !std::isfinite(value); });
    if (bad != piece.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          impl_->PathOf(info.file), ": tensor ", name, " holds ", *bad, " at element ",
          begin + static_cast<size_t>(bad - piece.begin()), "; weights must be finite"));
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal

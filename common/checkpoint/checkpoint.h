// A Hugging Face checkpoint directory: config.json and one or more safetensors files, with or
// without model.safetensors.index.json. Only headers are read at open; tensors are read when asked
// for.
//
// Format: https://github.com/huggingface/safetensors (8-byte little-endian header length, JSON
// header, data).
#ifndef SHOAL_COMMON_CHECKPOINT_CHECKPOINT_H_
#define SHOAL_COMMON_CHECKPOINT_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/dtype.h"

namespace shoal {

// Where one tensor's bytes are. The range has been checked against the file's size and the shape.
struct TensorInfo {
  std::string file;  // name inside the checkpoint directory
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
  uint64_t offset_bytes = 0;  // from the start of the file
  uint64_t size_bytes = 0;
  uint64_t num_elements() const;
};

// Thread-safe after Open.
class Checkpoint {
 public:
  // Reads config.json's text and all headers. Every header is checked before use: its length
  // against the file, shapes against overflow and byte ranges, ranges against the file and each
  // other (no overlap, no hole), keys that appear twice, the index against the shards (both
  // directions; a shard is a file of this directory). Errors name the file, the tensor and what is
  // wrong:
  //   NOT_FOUND         a file is missing
  //   DATA_LOSS         a truncated file, or ranges that overlap, leave holes or leave the file
  //   INVALID_ARGUMENT  a malformed header or index, an index that contradicts the shards, a shape
  //                     that overflows or contradicts its range
  // A tensor of a dtype that is not read is no error here: Find refuses it by name.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& directory);
  ~Checkpoint();

  const std::string& directory() const;
  // Text of config.json.
  const std::string& config_json() const;
  // All readable tensors by name.
  const absl::flat_hash_map<std::string, TensorInfo>& tensors() const;
  // SHA-256 (hex) over config.json, every header and every file's name and size: changes whenever
  // the checkpoint is another one, without reading the data.
  const std::string& fingerprint() const;

  // The tensor's place, checked to have exactly `shape`, except that dimensions of size 1 do not
  // count: [1, 1, H, 1] and [H] hold the same elements in the same order, and both are published.
  // The result's shape is the file's own. NOT_FOUND names the tensor and the files searched;
  // INVALID_ARGUMENT names both shapes; UNIMPLEMENTED names its dtype.
  absl::StatusOr<TensorInfo> Find(absl::string_view name, std::span<const uint64_t> shape) const;

  // Reads the raw bytes (little-endian, row-major) of a tensor. out.size() == info.size_bytes.
  absl::Status ReadRaw(const TensorInfo& info, std::span<std::byte> out) const;

  // Reads and widens to float. out.size() == info.num_elements(). INVALID_ARGUMENT when an element
  // is NaN or infinite; names `name` and the first such index. DATA_LOSS where the file has become
  // shorter since Open.
  absl::Status ReadFloat(absl::string_view name, const TensorInfo& info,
                         std::span<float> out) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The parsed header of one safetensors file: what Checkpoint::Open checks a file with, and what the
// fuzzer drives. `header` is the JSON text, `data_bytes` the bytes that follow it in the file,
// `file` the name for messages. Tensors of unreadable types are returned in `unreadable` (name ->
// dtype name). Offsets returned are relative to the start of the data.
struct SafetensorsHeader {
  absl::flat_hash_map<std::string, TensorInfo> tensors;
  absl::flat_hash_map<std::string, std::string> unreadable;
};
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view header,
                                                         uint64_t data_bytes,
                                                         absl::string_view file);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;
};

// Writes one safetensors file, tensor by tensor, in the order given at Create. Atomic: `path`
// appears at Finish, complete; until then the bytes are in its neighbour `path`.tmp, which goes
// with a writer that was not finished.
class SafetensorsWriter {
 public:
  // INVALID_ARGUMENT where a name comes twice or the shapes overflow; the errors of the file
  // system.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                                   std::vector<TensorSpec> tensors);
  ~SafetensorsWriter();
  // Appends the next tensor's data (F32 only). FAILED_PRECONDITION where the size is not the next
  // tensor's.
  absl::Status AppendFloat(std::span<const float> data);
  // Checks that every tensor was written, syncs and publishes.
  absl::Status Finish();

 private:
  struct Impl;
  explicit SafetensorsWriter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_CHECKPOINT_CHECKPOINT_H_

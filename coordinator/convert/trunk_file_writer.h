// Writes trunk.bin tensor by tensor, wherever the weights come from.
#ifndef SHOAL_COORDINATOR_CONVERT_TRUNK_FILE_WRITER_H_
#define SHOAL_COORDINATOR_CONVERT_TRUNK_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/container/staged_file.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/unit_codec.h"

namespace shoal {

// Size of a file that holds these tensors.
uint64_t TrunkFileBytes(const std::vector<TrunkEntry>& entries);

// The weights of one trunk tensor, by row. One thread at a time.
class TrunkRows {
 public:
  virtual ~TrunkRows() = default;
  // Rows [first, first + out.size() / cols) of the tensor as it is stored, finite. Called for all
  // rows, front to back. `out` is [rows, cols]; a vector is one row.
  virtual absl::Status Read(int64_t first, int64_t cols, std::span<float> out) = 0;
};

// One thread at a time. A file that was not published is removed with the object.
class TrunkFileWriter {
 public:
  // Begins `directory`/trunk.bin. `pool` outlives the writer.
  static absl::StatusOr<std::unique_ptr<TrunkFileWriter>> Create(const std::string& directory,
                                                                 ThreadPool& pool);

  // Appends the tensor; entries come in the order in which they were laid out. Memory: a few MiB,
  // and the tensor's scales. INVALID_ARGUMENT where a weight is too large for the stored type;
  // RESOURCE_EXHAUSTED (disk); `rows`' errors.
  absl::Status WriteTensor(const TrunkEntry& entry, TrunkRows& rows);

  struct Written {
    FileEntry file;
    std::vector<uint32_t> crcs;  // of the tensors, in order
    double relative_error = 0;   // ||W - Wq|| / ||W|| over all of them
  };
  // Once, after the last tensor. StagedFile::Publish's errors.
  absl::StatusOr<Written> Publish();

 private:
  TrunkFileWriter(std::unique_ptr<StagedFile> file, ThreadPool& pool)
      : pool_(pool), file_(std::move(file)) {}
  absl::Status StoreBlock(const TrunkEntry& entry, int64_t cols, std::span<uint16_t> scales);
  absl::Status Append(std::span<const std::byte> bytes);

  ThreadPool& pool_;
  const std::unique_ptr<StagedFile> file_;
  std::vector<float> block_;
  std::vector<std::byte> values_;
  std::vector<uint32_t> crcs_;
  uint32_t crc_ = 0;  // of the tensor that is being written
  SquaredError error_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_TRUNK_FILE_WRITER_H_

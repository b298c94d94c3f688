// Writes the bank of one MoE layer and its hash tree, wherever the records come from.
#ifndef SHOAL_COORDINATOR_CONVERT_BANK_FILE_WRITER_H_
#define SHOAL_COORDINATOR_CONVERT_BANK_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/container/staged_file.h"
#include "common/io/sha256.h"

namespace shoal {

// One thread at a time. Files that were not published are removed with the object.
class BankFileWriter {
 public:
  // Begins the layer's two files in `directory`, a container in the making.
  static absl::StatusOr<std::unique_ptr<BankFileWriter>> Create(const std::string& directory,
                                                                int64_t layer);

  // The next experts: their records, whole, and the digests of their units, by expert and unit.
  // RESOURCE_EXHAUSTED where the disk is full.
  absl::Status Append(std::span<const std::byte> records,
                      std::span<const Sha256Digest> unit_digests);

  struct Written {
    FileEntry bank;
    FileEntry tree;
    std::string tree_root;
  };
  // Once, after the last expert. StagedFile's errors.
  absl::StatusOr<Written> Publish();

 private:
  BankFileWriter(std::unique_ptr<StagedFile> bank, std::unique_ptr<StagedFile> tree)
      : bank_(std::move(bank)), tree_(std::move(tree)) {}

  const std::unique_ptr<StagedFile> bank_;
  const std::unique_ptr<StagedFile> tree_;
  std::string leaves_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_BANK_FILE_WRITER_H_

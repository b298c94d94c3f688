// A file of a container or a partition in the making: written once, front to back, under a temporary name, and
// hashed on the way.
#ifndef SHOAL_COMMON_CONTAINER_STAGED_FILE_H_
#define SHOAL_COMMON_CONTAINER_STAGED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/io/sha256.h"
#include "common/io/unique_fd.h"

namespace shoal {

// What the temporary name adds; a file with it is never part of a directory that is done.
inline constexpr char kStagedSuffix[] = ".tmp";

// One thread at a time. A file that was not published is removed with the object, so that work
// that fails for want of space gives the space back.
class StagedFile {
 public:
  // Creates `directory`/`relative_path`.tmp; the folder that holds it exists.
  static absl::StatusOr<std::unique_ptr<StagedFile>> Create(const std::string& directory,
                                                            const std::string& relative_path);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  absl::Status Append(std::span<const std::byte> bytes);
  // Zero bytes up to the next multiple of `alignment` (at most 4096).
  absl::Status PadTo(uint64_t alignment);
  uint64_t size_bytes() const { return size_bytes_; }

  // Syncs, renames to the final name and drops the file's pages from the page cache.
  // RESOURCE_EXHAUSTED, as Append, where the disk is full.
  absl::StatusOr<FileEntry> Publish();

 private:
  StagedFile(std::string path, std::string relative_path, UniqueFd fd)
      : path_(std::move(path)), relative_path_(std::move(relative_path)), fd_(std::move(fd)) {}

  const std::string path_;
  const std::string relative_path_;
  UniqueFd fd_;
  Sha256 digest_;
  uint64_t size_bytes_ = 0;
  bool published_ = false;
};

// Size and SHA-256 of `directory`/`relative_path` as it is on disk. Its pages do not stay in the
// page cache.
absl::StatusOr<FileEntry> HashFile(const std::string& directory, const std::string& relative_path);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_STAGED_FILE_H_

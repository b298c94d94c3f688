#include "common/container/staged_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

absl::StatusOr<std::unique_ptr<StagedFile>> StagedFile::Create(const std::string& directory,
                                                               const std::string& relative_path) {
  std::string path = absl::StrCat(directory, "/", relative_path);
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, CreateForWrite(absl::StrCat(path, kStagedSuffix)));
  return std::unique_ptr<StagedFile>(new StagedFile(std::move(path), relative_path, std::move(fd)));
}

StagedFile::~StagedFile() {
  if (!published_) {
    std::error_code ignored;  // the next run empties it
    std::filesystem::remove(absl::StrCat(path_, kStagedSuffix), ignored);
  }
}

absl::Status StagedFile::Append(std::span<const std::byte> bytes) {
  SHOAL_RETURN_IF_ERROR(WriteAll(fd_, path_, bytes));
  digest_.Update(bytes);
  size_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status StagedFile::PadTo(uint64_t alignment) {
  static constexpr std::array<std::byte, 4096> kZeros{};
  const uint64_t excess = size_bytes_ % alignment;
  return excess == 0 ? absl::OkStatus() : Append(std::span(kZeros).first(alignment - excess));
}

absl::StatusOr<FileEntry> StagedFile::Publish() {
  SHOAL_RETURN_IF_ERROR(SyncFile(fd_, path_));
  DropPageCache(fd_, 0, 0);
  SHOAL_RETURN_IF_ERROR(Annotate(fd_.Close(), path_));
  SHOAL_RETURN_IF_ERROR(RenameDurably(absl::StrCat(path_, kStagedSuffix), path_));
  published_ = true;
  return FileEntry{relative_path_, size_bytes_, ToHex(digest_.Finish())};
}

absl::StatusOr<FileEntry> HashFile(const std::string& directory, const std::string& relative_path) {
  constexpr uint64_t kStepBytes = uint64_t{4} << 20;
  const std::string path = absl::StrCat(directory, "/", relative_path);
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t size, FileBytes(fd, path));
  Sha256 digest;
  std::vector<std::byte> buffer(std::min(size, kStepBytes));
  for (uint64_t offset = 0; offset < size;) {
    const auto step = std::span(buffer).first(std::min(size - offset, kStepBytes));
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, offset, step));
    digest.Update(step);
    offset += step.size();
  }
  DropPageCache(fd, 0, 0);
  return FileEntry{relative_path, size, ToHex(digest.Finish())};
}

}  // namespace shoal

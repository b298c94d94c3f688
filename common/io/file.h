// Whole-file and positioned reads, and atomic writes. The only place besides the expert store that
// opens files. Beside the errors a function names, what the system refuses is ErrnoToStatus's, with
// the path.
#ifndef SHOAL_COMMON_IO_FILE_H_
#define SHOAL_COMMON_IO_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/unique_fd.h"

namespace shoal {

// Opens an existing regular file for reading. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT
// where it is not a regular file; the message names `path`.
absl::StatusOr<UniqueFd> OpenForRead(const std::string& path);

// Size in bytes of an open file.
absl::StatusOr<uint64_t> FileBytes(const UniqueFd& fd, absl::string_view path);

// Reads exactly out.size() bytes at `offset_bytes`, retrying short reads and EINTR. DATA_LOSS where
// the file ends first.
absl::Status ReadExactAt(const UniqueFd& fd, absl::string_view path, uint64_t offset_bytes,
                         std::span<std::byte> out);

// Tells the kernel that the pages of [offset, offset + length) need not stay in the page cache
// (length 0: to the end).
void DropPageCache(const UniqueFd& fd, uint64_t offset_bytes, uint64_t length_bytes);

// The whole file as text. RESOURCE_EXHAUSTED where it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes);

// Writes all of `bytes` at the descriptor's position, retrying short writes and EINTR.
absl::Status WriteAll(const UniqueFd& fd, absl::string_view path, std::span<const std::byte> bytes);

// Creates (or empties) a file for writing.
absl::StatusOr<UniqueFd> CreateForWrite(const std::string& path);

// Replaces `path` with `content`: a temporary neighbour is written, synced and renamed, then the
// directory is synced, so that a kill at any moment leaves the old content or the new. An error
// leaves no temporary.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view content);

// Makes a finished rename or create in `directory` survive a power cut.
absl::Status SyncDirectory(const std::string& directory);

// Syncs the file's content to disk.
absl::Status SyncFile(const UniqueFd& fd, absl::string_view path);

// Renames `from` to `to` (same file system) and syncs the directory that holds `to`.
absl::Status RenameDurably(const std::string& from, const std::string& to);

// Free bytes for unprivileged writers on the file system that holds `path`.
absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& path);

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_FILE_H_

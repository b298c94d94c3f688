#include "coordinator/cli/npy_writer.h"

#include <stdio.h>

#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"

namespace shoal {

static_assert(std::endian::native == std::endian::little, "values are written as they lie");

std::string NpyHeader(NpyType type, int64_t rows, int64_t columns) {
  constexpr size_t kPrefixBytes = 10;  // magic, version, length of the rest
  std::string dictionary =
      absl::StrFormat("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }",
                      type == NpyType::kFloat32 ? "<f4" : "<i4", rows, columns);
  while ((kPrefixBytes + dictionary.size() + 1) % 64 != 0) {
    dictionary += ' ';
  }
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

absl::StatusOr<NpyWriter> NpyWriter::Create(const std::string& path, NpyType type, int64_t rows,
                                            int64_t columns) {
  if (rows < 0 || columns < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": an array of ", rows, " x ", columns, " values does not exist"));
  }
  NpyWriter writer;
  writer.path_ = path;
  const std::string partial_path = absl::StrCat(path, ".partial");
  SHOAL_ASSIGN_OR_RETURN(writer.fd_, CreateForWrite(partial_path));
  writer.partial_path_ = partial_path;
  const std::string header = NpyHeader(type, rows, columns);
  SHOAL_RETURN_IF_ERROR(WriteAll(writer.fd_, path, std::as_bytes(std::span(header))));
  writer.missing_bytes_ = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * 4;
  return writer;
}

NpyWriter::~NpyWriter() {
  if (!partial_path_.empty()) {
    ::remove(partial_path_.c_str());
  }
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      partial_path_(std::exchange(other.partial_path_, std::string())),
      fd_(std::move(other.fd_)),
      missing_bytes_(other.missing_bytes_) {}

// What this object held goes away with `other`.
NpyWriter& NpyWriter::operator=(NpyWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_path_, other.partial_path_);
  std::swap(fd_, other.fd_);
  std::swap(missing_bytes_, other.missing_bytes_);
  return *this;
}

absl::Status NpyWriter::Append(std::span<const float> values) {
  return AppendBytes(std::as_bytes(values));
}

absl::Status NpyWriter::Append(std::span<const int32_t> values) {
  return AppendBytes(std::as_bytes(values));
}

absl::Status NpyWriter::AppendBytes(std::span<const std::byte> bytes) {
  if (bytes.size() > missing_bytes_) {
    return absl::InternalError(absl::StrCat(path_, ": more values than its shape has"));
  }
  missing_bytes_ -= bytes.size();
  return WriteAll(fd_, path_, bytes);
}

absl::Status NpyWriter::Finish() {
  if (missing_bytes_ != 0) {
    return absl::InternalError(
        absl::StrCat(path_, ": ", missing_bytes_ / 4, " values are missing at the end"));
  }
  SHOAL_RETURN_IF_ERROR(SyncFile(fd_, path_));
  SHOAL_RETURN_IF_ERROR(fd_.Close());
  SHOAL_RETURN_IF_ERROR(RenameDurably(partial_path_, path_));
  partial_path_.clear();
  return absl::OkStatus();
}

}  // namespace shoal

#include "coordinator/cli/npy_writer.h"

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
  NpyWriter writer;
  writer.path_ = path;
  SHOAL_ASSIGN_OR_RETURN(writer.fd_, CreateForWrite(absl::StrCat(path, ".partial")));
  const std::string header = NpyHeader(type, rows, columns);
  SHOAL_RETURN_IF_ERROR(WriteAll(writer.fd_, path, std::as_bytes(std::span(header))));
  writer.missing_bytes_ = static_cast<uint64_t>(rows) * static_cast<uint64_t>(columns) * 4;
  return writer;
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
  return RenameDurably(absl::StrCat(path_, ".partial"), path_);
}

}  // namespace shoal

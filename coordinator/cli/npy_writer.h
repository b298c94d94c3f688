// NumPy's .npy files (format version 1.0), written row by row.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#ifndef SHOAL_COORDINATOR_CLI_NPY_WRITER_H_
#define SHOAL_COORDINATOR_CLI_NPY_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/unique_fd.h"

namespace shoal {

enum class NpyType { kFloat32, kInt32 };

// The bytes in front of the values: little-endian, C order, padded to a multiple of 64.
std::string NpyHeader(NpyType type, int64_t rows, int64_t columns);

// One array [rows, columns]. The values go to `path`.partial, which gets its name in Finish, so
// that `path` never holds half an array; a writer that did not come so far removes it. Movable.
class NpyWriter {
 public:
  // INVALID_ARGUMENT for a negative number of rows or columns.
  static absl::StatusOr<NpyWriter> Create(const std::string& path, NpyType type, int64_t rows,
                                          int64_t columns);
  ~NpyWriter();
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&& other) noexcept;

  // The next values, in C order. INTERNAL where there are more than the shape has.
  absl::Status Append(std::span<const float> values);
  absl::Status Append(std::span<const int32_t> values);
  // Syncs, closes and names the file. INTERNAL where values are missing; names how many.
  absl::Status Finish();

 private:
  NpyWriter() = default;
  absl::Status AppendBytes(std::span<const std::byte> bytes);

  std::string path_;
  std::string partial_path_;  // empty where there is nothing to remove
  UniqueFd fd_;
  uint64_t missing_bytes_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_NPY_WRITER_H_

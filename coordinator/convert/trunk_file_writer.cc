#include "coordinator/convert/trunk_file_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "common/status/status_macros.h"
#include "kernels/matrix.h"
#include "kernels/matvec.h"

namespace shoal {
namespace {

// Weights held at a time: large enough that threads have work, small beside any budget.
constexpr int64_t kBlockElements = int64_t{1} << 19;

// To the nearest bfloat16, ties to even; what would round to infinity becomes the largest value.
uint16_t ToBf16(float value) {
  constexpr uint16_t kInfinity = 0x7F80;
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto rounded = static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
  return (rounded & 0x7FFF) == kInfinity ? rounded - 1 : rounded;
}

// Stores one row and adds up what that loses.
SquaredError StoreRow(TrunkType type, std::span<const float> row, std::span<std::byte> values,
                      std::span<uint16_t> scales) {
  const auto cols = static_cast<int64_t>(row.size());
  std::vector<float> stored(row.size());
  switch (type) {
    case TrunkType::kF32:
      std::memcpy(values.data(), row.data(), row.size_bytes());
      break;
    case TrunkType::kBF16:
      for (int64_t i = 0; i < cols; ++i) {
        const uint16_t bits = ToBf16(row[i]);
        std::memcpy(values.data() + i * sizeof(bits), &bits, sizeof(bits));
      }
      break;
    case TrunkType::kQ8:
    case TrunkType::kQ4:
      QuantizeWeightRow(type, row, values, scales);
      break;
  }
  DequantizeRow({type, 1, cols, values.data(), scales.data()}, 0, stored);
  SquaredError sum;
  for (int64_t i = 0; i < cols; ++i) {
    const double error = double{row[i]} - double{stored[i]};
    sum.error += error * error;
    sum.weight += double{row[i]} * double{row[i]};
  }
  return sum;
}

}  // namespace

uint64_t TrunkFileBytes(const std::vector<TrunkEntry>& entries) {
  return entries.empty() ? 0 : entries.back().offset_bytes + entries.back().size_bytes;
}

absl::StatusOr<std::unique_ptr<TrunkFileWriter>> TrunkFileWriter::Create(
    const std::string& directory, ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file,
                         StagedFile::Create(directory, std::string(kTrunkFile)));
  return std::unique_ptr<TrunkFileWriter>(new TrunkFileWriter(std::move(file), pool));
}

absl::Status TrunkFileWriter::WriteTensor(const TrunkEntry& entry, TrunkRows& source) {
  SHOAL_RETURN_IF_ERROR(file_->PadTo(kSectionAlignment));
  crc_ = Crc32c({});
  const int64_t cols = static_cast<int64_t>(entry.shape.back());
  const int64_t rows = entry.shape.size() == 1 ? 1 : static_cast<int64_t>(entry.shape.front());
  const int64_t scales_per_row = ScalesPerRow(entry.type, cols);
  std::vector<uint16_t> scales(rows * scales_per_row);
  const int64_t block_rows = std::clamp<int64_t>(kBlockElements / cols, 1, rows);
  for (int64_t first = 0; first < rows; first += block_rows) {
    const int64_t count = std::min(block_rows, rows - first);
    block_.resize(count * cols);
    SHOAL_RETURN_IF_ERROR(source.Read(first, cols, block_));
    SHOAL_RETURN_IF_ERROR(StoreBlock(
        entry, cols, std::span(scales).subspan(first * scales_per_row, count * scales_per_row)));
  }
  if (entry.scales_offset_bytes != 0) {
    std::vector<std::byte> padding(entry.offset_bytes + entry.scales_offset_bytes -
                                   file_->size_bytes());
    SHOAL_RETURN_IF_ERROR(Append(padding));
    SHOAL_RETURN_IF_ERROR(Append(std::as_bytes(std::span(scales))));
  }
  crcs_.push_back(crc_);
  return absl::OkStatus();
}

absl::StatusOr<TrunkFileWriter::Written> TrunkFileWriter::Publish() {
  Written written;
  SHOAL_ASSIGN_OR_RETURN(written.file, file_->Publish());
  written.crcs = std::move(crcs_);
  written.relative_error = error_.Relative();
  return written;
}

absl::Status TrunkFileWriter::StoreBlock(const TrunkEntry& entry, int64_t cols,
                                         std::span<uint16_t> scales) {
  const auto count = static_cast<int64_t>(block_.size()) / cols;
  const int64_t row_bytes = RowValueBytes(entry.type, cols);
  const int64_t row_scales = ScalesPerRow(entry.type, cols);
  values_.resize(count * row_bytes);
  std::vector<SquaredError> errors(count);
  pool_.ParallelFor(count, [&](int64_t row, int /*worker*/) {
    errors[row] = StoreRow(entry.type, std::span<const float>(block_).subspan(row * cols, cols),
                           std::span(values_).subspan(row * row_bytes, row_bytes),
                           scales.subspan(row * row_scales, row_scales));
  });
  for (const SquaredError& error : errors) {
    error_ += error;
  }
  if (!std::isfinite(error_.error)) {
    return absl::InvalidArgumentError(absl::StrCat("trunk tensor ", entry.name,
                                                   " holds weights too large for ",
                                                   TrunkTypeName(entry.type), "; use --trunk f32"));
  }
  return Append(values_);
}

absl::Status TrunkFileWriter::Append(std::span<const std::byte> bytes) {
  crc_ = ExtendCrc32c(crc_, bytes);
  return file_->Append(bytes);
}

}  // namespace shoal

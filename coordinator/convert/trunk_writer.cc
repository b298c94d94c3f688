#include "coordinator/convert/trunk_writer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/staged_file.h"
#include "common/io/crc32c.h"
#include "common/status/status_macros.h"
#include "coordinator/convert/expert_encoder.h"
#include "coordinator/convert/parallel_status.h"
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

// Rows of one stored tensor, read from the checkpoint as needed.
class RowReader {
 public:
  RowReader(const Checkpoint& checkpoint, const ModelConfig& config, const TrunkSource& source)
      : checkpoint_(checkpoint), mla_(config.mla), source_(source) {}

  // The source tensor's digest; every row has been read. Absent where another trunk tensor counts
  // it.
  std::optional<Sha256Digest> Digest() {
    return source_.counts ? std::optional(digest_.Finish()) : std::nullopt;
  }

  // Rows [first, first + out.size() / cols) of the stored tensor, in order from call to call.
  absl::Status Read(int64_t first, int64_t cols, std::span<float> out) {
    Sha256* digest = source_.counts ? &digest_ : nullptr;
    const TrunkRole role = source_.tensor.role;
    if (role != TrunkRole::kKeyUpProj && role != TrunkRole::kValueUpProj) {
      return ReadElements(checkpoint_, source_.tensor.source_name, source_.info, first * cols, out,
                          raw_, digest);
    }
    if (whole_.empty()) {
      // Both halves are spread over the whole of kv_b_proj, which is small.
      whole_.resize(source_.info.num_elements());
      SHOAL_RETURN_IF_ERROR(ReadElements(checkpoint_, source_.tensor.source_name, source_.info, 0,
                                         whole_, raw_, digest));
    }
    for (int64_t row = 0; row * cols < static_cast<int64_t>(out.size()); ++row) {
      CopyHalfRow(first + row, out.subspan(row * cols, cols));
    }
    return absl::OkStatus();
  }

 private:
  // kv_b_proj is, for each head, qk_nope_head_dim rows of K and v_head_dim rows of V over
  // kv_lora_rank columns.
  void CopyHalfRow(int64_t row, std::span<float> out) const {
    const int64_t rank = mla_.kv_lora_rank;
    const int64_t head_rows = mla_.qk_nope_head_dim + mla_.v_head_dim;
    if (source_.tensor.role == TrunkRole::kValueUpProj) {
      const int64_t head = row / mla_.v_head_dim;
      const int64_t source_row = head * head_rows + mla_.qk_nope_head_dim + row % mla_.v_head_dim;
      std::copy_n(whole_.begin() + source_row * rank, rank, out.begin());
      return;
    }
    const int64_t head = row / rank;
    for (int64_t i = 0; i < mla_.qk_nope_head_dim; ++i) {
      out[i] = whole_[(head * head_rows + i) * rank + row % rank];
    }
  }

  const Checkpoint& checkpoint_;
  const MlaConfig& mla_;
  const TrunkSource& source_;
  Sha256 digest_;
  std::vector<std::byte> raw_;
  std::vector<float> whole_;  // kv_b_proj only
};

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

// Writes tensors one after another and keeps what the ledger wants to know.
class TrunkWriter {
 public:
  TrunkWriter(ThreadPool& pool, StagedFile& file) : pool_(pool), file_(file) {}

  absl::Status WriteTensor(const TrunkEntry& entry, RowReader& reader) {
    SHOAL_RETURN_IF_ERROR(file_.PadTo(kSectionAlignment));
    crc_ = Crc32c({});
    const int64_t cols = static_cast<int64_t>(entry.shape.back());
    const int64_t rows = entry.shape.size() == 1 ? 1 : static_cast<int64_t>(entry.shape.front());
    const int64_t scales_per_row = ScalesPerRow(entry.type, cols);
    std::vector<uint16_t> scales(rows * scales_per_row);
    const int64_t block_rows = std::clamp<int64_t>(kBlockElements / cols, 1, rows);
    for (int64_t first = 0; first < rows; first += block_rows) {
      const int64_t count = std::min(block_rows, rows - first);
      block_.resize(count * cols);
      SHOAL_RETURN_IF_ERROR(reader.Read(first, cols, block_));
      SHOAL_RETURN_IF_ERROR(StoreBlock(
          entry, cols, std::span(scales).subspan(first * scales_per_row, count * scales_per_row)));
    }
    if (entry.scales_offset_bytes != 0) {
      std::vector<std::byte> padding(entry.offset_bytes + entry.scales_offset_bytes -
                                     file_.size_bytes());
      SHOAL_RETURN_IF_ERROR(Append(padding));
      SHOAL_RETURN_IF_ERROR(Append(std::as_bytes(std::span(scales))));
    }
    crcs_.push_back(crc_);
    return absl::OkStatus();
  }

  std::vector<uint32_t> TakeCrcs() { return std::move(crcs_); }
  const SquaredError& error() const { return error_; }

 private:
  absl::Status StoreBlock(const TrunkEntry& entry, int64_t cols, std::span<uint16_t> scales) {
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
      return absl::InvalidArgumentError(
          absl::StrCat("trunk tensor ", entry.name, " holds weights too large for ",
                       TrunkTypeName(entry.type), "; use --trunk f32"));
    }
    return Append(values_);
  }

  absl::Status Append(std::span<const std::byte> bytes) {
    crc_ = ExtendCrc32c(crc_, bytes);
    return file_.Append(bytes);
  }

  ThreadPool& pool_;
  StagedFile& file_;
  std::vector<float> block_;
  std::vector<std::byte> values_;
  std::vector<uint32_t> crcs_;
  uint32_t crc_ = 0;
  SquaredError error_;
};

}  // namespace

std::vector<TrunkEntry> LayOutTrunk(const SourceModel& source, TrunkType type) {
  std::vector<TrunkEntry> entries;
  uint64_t offset_bytes = 0;
  for (const TrunkSource& trunk : source.trunk) {
    const TrunkType stored =
        StoredTrunkType(trunk.tensor.role, type, trunk.info.dtype == DType::kBF16);
    entries.push_back(
        LayOutTrunkEntry(trunk.tensor.name, stored, trunk.tensor.shape, offset_bytes));
    offset_bytes = entries.back().offset_bytes + entries.back().size_bytes;
  }
  return entries;
}

uint64_t TrunkFileBytes(const std::vector<TrunkEntry>& entries) {
  return entries.empty() ? 0 : entries.back().offset_bytes + entries.back().size_bytes;
}

absl::StatusOr<LedgerTrunk> WriteTrunk(const Checkpoint& checkpoint, const SourceModel& source,
                                       const std::vector<TrunkEntry>& entries,
                                       const std::string& directory, ThreadPool& pool,
                                       const std::function<absl::Status(uint64_t)>& on_bytes) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file,
                         StagedFile::Create(directory, std::string(kTrunkFile)));
  LedgerTrunk trunk;
  TrunkWriter writer(pool, *file);
  for (size_t i = 0; i < entries.size(); ++i) {
    const TrunkSource& tensor = source.trunk[i];
    RowReader reader(checkpoint, source.config, tensor);
    SHOAL_RETURN_IF_ERROR(writer.WriteTensor(entries[i], reader));
    if (const auto digest = reader.Digest()) {
      trunk.source_digests.push_back(*digest);
    }
    SHOAL_RETURN_IF_ERROR(on_bytes(tensor.counts ? tensor.info.size_bytes : 0));
  }
  SHOAL_ASSIGN_OR_RETURN(trunk.file, file->Publish());
  trunk.crcs = writer.TakeCrcs();
  trunk.relative_error = writer.error().Relative();
  return trunk;
}

}  // namespace shoal

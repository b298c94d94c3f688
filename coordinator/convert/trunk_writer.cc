#include "coordinator/convert/trunk_writer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "common/status/status_macros.h"
#include "coordinator/convert/trunk_file_writer.h"

namespace shoal {
namespace {

// Rows of one stored tensor, read from the checkpoint as needed.
class RowReader final : public TrunkRows {
 public:
  RowReader(const Checkpoint& checkpoint, const ModelConfig& config, const TrunkSource& source)
      : checkpoint_(checkpoint), mla_(config.mla), source_(source) {}

  // The source tensor's digest; every row has been read. Absent where another trunk tensor counts
  // it.
  std::optional<Sha256Digest> Digest() {
    return source_.counts ? std::optional(digest_.Finish()) : std::nullopt;
  }

  absl::Status Read(int64_t first, int64_t cols, std::span<float> out) override {
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

absl::StatusOr<LedgerTrunk> WriteTrunk(const Checkpoint& checkpoint, const SourceModel& source,
                                       const std::vector<TrunkEntry>& entries,
                                       const std::string& directory, ThreadPool& pool,
                                       const std::function<absl::Status(uint64_t)>& on_bytes) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<TrunkFileWriter> writer,
                         TrunkFileWriter::Create(directory, pool));
  LedgerTrunk trunk;
  for (size_t i = 0; i < entries.size(); ++i) {
    const TrunkSource& tensor = source.trunk[i];
    RowReader reader(checkpoint, source.config, tensor);
    SHOAL_RETURN_IF_ERROR(writer->WriteTensor(entries[i], reader));
    if (const auto digest = reader.Digest()) {
      trunk.source_digests.push_back(*digest);
    }
    SHOAL_RETURN_IF_ERROR(on_bytes(tensor.counts ? tensor.info.size_bytes : 0));
  }
  SHOAL_ASSIGN_OR_RETURN(TrunkFileWriter::Written written, writer->Publish());
  trunk.file = std::move(written.file);
  trunk.crcs = std::move(written.crcs);
  trunk.relative_error = written.relative_error;
  return trunk;
}

}  // namespace shoal

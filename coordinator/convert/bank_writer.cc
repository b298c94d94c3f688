#include "coordinator/convert/bank_writer.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "coordinator/convert/bank_file_writer.h"
#include "coordinator/convert/parallel_status.h"
#include "coordinator/convert/source_model.h"
#include "coordinator/convert/unit_codec.h"
#include "coordinator/memory_plan.h"

namespace shoal {
namespace {

// Experts held at a time. Their units are what threads share, at least 8 an expert, so that this
// many keep any machine busy; an expert of the largest model is 140 MB as float.
constexpr int64_t kMaxExpertsInFlight = 16;

// Share of the usable memory that the experts in flight may take; what is usable counts page cache
// of the checkpoint that is still wanted.
constexpr uint64_t kMemoryShare = 4;

// What one expert in flight takes at most: its weights as float, its source bytes (at most as many)
// and its record.
uint64_t ExpertBytes(const BankJob& job) {
  const auto elements = static_cast<uint64_t>(kExpertMatrices * job.config.hidden_size *
                                              job.config.moe.moe_intermediate_size);
  return 2 * elements * sizeof(float) + job.layout.record_bytes;
}

int64_t ExpertsInFlight(const BankJob& job, int num_threads) {
  const auto room = static_cast<int64_t>(UsableMemoryBytes() / kMemoryShare / ExpertBytes(job));
  return std::clamp<int64_t>(
      room, 1, std::min<int64_t>({job.config.moe.num_experts, num_threads, kMaxExpertsInFlight}));
}

// Consecutive experts of one layer, from source bytes to sealed records.
class Batch {
 public:
  Batch(const BankJob& job, const UnitCodec& codec, int64_t max_experts)
      : job_(job), codec_(codec) {
    for (int64_t i = 0; i < max_experts; ++i) {
      weights_.push_back(ExpertWeights::Sized(job.layout));
    }
  }

  absl::Status Read(int64_t first, int64_t count, ThreadPool& pool) {
    first_ = first;
    count_ = count;
    source_digests_.assign(count * kExpertMatrices, {});
    std::vector<uint64_t> bytes(source_digests_.size());
    SHOAL_RETURN_IF_ERROR(ParallelForStatus(
        pool, count * kExpertMatrices, [&](int64_t task, int /*worker*/) -> absl::Status {
          SHOAL_ASSIGN_OR_RETURN(const auto tensors, FindExpert(job_.checkpoint, job_.config,
                                                                KeyOf(task / kExpertMatrices)));
          const SourceTensor& tensor = tensors[task % kExpertMatrices];
          std::vector<float>& matrix =
              weights_[task / kExpertMatrices].matrices[task % kExpertMatrices];
          std::vector<std::byte> raw;
          Sha256 digest;
          SHOAL_RETURN_IF_ERROR(
              ReadElements(job_.checkpoint, tensor.name, tensor.info, 0, matrix, raw, &digest));
          source_digests_[task] = digest.Finish();
          bytes[task] = tensor.info.size_bytes;
          return absl::OkStatus();
        }));
    source_bytes_ = 0;
    for (const uint64_t tensor_bytes : bytes) {
      source_bytes_ += tensor_bytes;
    }
    return absl::OkStatus();
  }

  absl::Status Encode(ThreadPool& pool) {
    const int64_t num_units = job_.layout.num_units;
    records_.assign(count_ * job_.layout.record_bytes, std::byte{0});
    unit_digests_.assign(count_ * num_units, {});
    std::vector<SquaredError> errors(count_ * num_units);
    SHOAL_RETURN_IF_ERROR(ParallelForStatus(
        pool, count_ * num_units, [&](int64_t task, int /*worker*/) -> absl::Status {
          const int64_t expert = task / num_units;
          const int64_t unit_index = task % num_units;
          const auto unit = std::span(records_).subspan(
              expert * job_.layout.record_bytes + unit_index * job_.layout.unit_bytes,
              job_.layout.unit_bytes);
          SHOAL_ASSIGN_OR_RETURN(
              errors[task], codec_.EncodeUnit(KeyOf(expert), unit_index, weights_[expert], unit));
          unit_digests_[task] = Sha256::Of(unit);
          return absl::OkStatus();
        }));
    for (const SquaredError& error : errors) {
      error_ += error;
    }
    return absl::OkStatus();
  }

  std::span<const std::byte> records() const { return records_; }
  std::span<const Sha256Digest> unit_digests() const { return unit_digests_; }
  std::span<const Sha256Digest> source_digests() const { return source_digests_; }
  uint64_t source_bytes() const { return source_bytes_; }
  // Of all batches so far.
  const SquaredError& error() const { return error_; }

 private:
  ExpertKey KeyOf(int64_t index) const { return {job_.layer, first_ + index}; }

  const BankJob& job_;
  const UnitCodec& codec_;
  int64_t first_ = 0;
  int64_t count_ = 0;
  std::vector<ExpertWeights> weights_;
  std::vector<std::byte> records_;
  std::vector<Sha256Digest> unit_digests_;    // by expert and unit
  std::vector<Sha256Digest> source_digests_;  // by expert and matrix
  uint64_t source_bytes_ = 0;
  SquaredError error_;
};

}  // namespace

absl::StatusOr<LedgerLayer> WriteBank(const BankJob& job, ThreadPool& pool,
                                      const std::function<absl::Status(uint64_t)>& on_bytes) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<BankFileWriter> writer,
                         BankFileWriter::Create(job.directory, job.layer));
  const std::unique_ptr<UnitCodec> codec =
      MakeUnitCodec(job.layout, job.codebooks.value_or(TrainedCodebooks{}), job.seed);
  const int64_t num_experts = job.config.moe.num_experts;
  const int64_t in_flight = ExpertsInFlight(job, pool.num_threads());
  Batch batch(job, *codec, in_flight);
  LedgerLayer layer;
  layer.layer = job.layer;
  for (int64_t first = 0; first < num_experts; first += in_flight) {
    SHOAL_RETURN_IF_ERROR(batch.Read(first, std::min(in_flight, num_experts - first), pool));
    SHOAL_RETURN_IF_ERROR(batch.Encode(pool));
    SHOAL_RETURN_IF_ERROR(writer->Append(batch.records(), batch.unit_digests()));
    layer.source_digests.insert(layer.source_digests.end(), batch.source_digests().begin(),
                                batch.source_digests().end());
    SHOAL_RETURN_IF_ERROR(on_bytes(batch.source_bytes()));
  }
  SHOAL_ASSIGN_OR_RETURN(BankFileWriter::Written written, writer->Publish());
  layer.bank = std::move(written.bank);
  layer.tree = std::move(written.tree);
  layer.tree_root = std::move(written.tree_root);
  layer.relative_error = batch.error().Relative();
  if (job.codebooks) {
    layer.codebooks = job.codebooks->books;
  }
  return layer;
}

}  // namespace shoal

// Computes the routed part of one MoE layer for the units it holds. The caller does not know
// whether they are in this process or on other machines; results are bit-identical either way
// (docs/design.md, "Exactness").
#ifndef SHOAL_EXPERT_NODE_EXPERT_BACKEND_H_
#define SHOAL_EXPERT_NODE_EXPERT_BACKEND_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

// What one layer's experts cost so far. Times are wall-clock of the calls to Execute.
struct ExpertLayerStats {
  int64_t layer = 0;          // the model's layer index, zero-based
  int64_t expert_hits = 0;    // record found in the cache
  int64_t expert_misses = 0;  // record not in the cache
  // Reads issued; as many as misses, unless a checksum failed and the record was read again, or the
  // system returned less than was asked.
  int64_t expert_reads = 0;
  uint64_t expert_bytes = 0;  // bytes read
  absl::Duration wait_time;   // waiting for reads with nothing to compute
  absl::Duration compute_time;

  // Counters and times; `layer` stays.
  ExpertLayerStats& operator+=(const ExpertLayerStats& more) {
    expert_hits += more.expert_hits;
    expert_misses += more.expert_misses;
    expert_reads += more.expert_reads;
    expert_bytes += more.expert_bytes;
    wait_time += more.wait_time;
    compute_time += more.compute_time;
    return *this;
  }
  ExpertLayerStats& operator-=(const ExpertLayerStats& less) {
    expert_hits -= less.expert_hits;
    expert_misses -= less.expert_misses;
    expert_reads -= less.expert_reads;
    expert_bytes -= less.expert_bytes;
    wait_time -= less.wait_time;
    compute_time -= less.compute_time;
    return *this;
  }
};

// Thread-safe: calls may overlap. A backend outlives every call made on it.
class ExpertBackend {
 public:
  struct Batch {
    int64_t layer = 0;  // the model's layer index, zero-based; an MoE layer
    int64_t num_rows = 0;
    // [num_rows, hidden_size], row-major; post-attention norm already applied.
    std::span<const float> rows;
    // [num_rows, num_experts_per_token], in router order.
    std::span<const int32_t> expert_ids;
    // The same shape; routed_scaling_factor already included.
    std::span<const float> expert_weights;
    // What the caller has to do meanwhile, and needs no result for; may be empty. Called once before
    // Execute returns OK, by the thread that called, when all reads or requests have been issued
    // and before anything is waited for.
    std::function<void()> meanwhile = {};
    // The client's call that this is for, by which logs name it, here and on other machines
    // (common/log/log_line.h); 0: none.
    uint64_t call = 0;
    ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
  };
  virtual ~ExpertBackend() = default;

  // For every row x: sum over its experts e of weight_e * down_e(silu(gate_e x) . up_e x),
  // restricted to the units and experts in `slices` (disjoint), in the arithmetic of the batch and int64 fixed point
  // (kernels/fixed_point.h; each term rounded once), so that sums over backends are exact. `out` is [num_rows, hidden_size] and is
  // added to, not overwritten. `batch` and `out` stay the caller's, may not overlap, and are not
  // touched after return. Blocks; stops early on `stop`.
  //
  // On error `out` is unspecified and the session may retry: no state is kept.
  //   INVALID_ARGUMENT   shapes disagree; layer, id or slice out of bounds; slices overlap; a row
  //                      or weight is not finite
  //   FAILED_PRECONDITION  part of a slice is not here; names it
  //   OUT_OF_RANGE       a term exceeds the fixed point range; names layer, expert and unit
  //   DATA_LOSS          a record failed its checksum twice; names file, layer, expert, unit
  //   CANCELLED          `stop` was requested
  virtual absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                               std::stop_token stop, std::span<int64_t> out) = 0;

  // How often sums that were given before turned out not to be trusted: who holds anything computed
  // from them should compute it again. Only grows; stays 0 where nobody else is trusted.
  virtual uint64_t Retractions() const { return 0; }

  // Counters since the backend was made, one entry a MoE layer in order.
  virtual std::vector<ExpertLayerStats> Stats() const = 0;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_BACKEND_H_

// Random weights that a model can be run with: activations keep their size from layer to layer.
#ifndef SHOAL_COORDINATOR_SYNTH_SYNTHETIC_WEIGHTS_H_
#define SHOAL_COORDINATOR_SYNTH_SYNTHETIC_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/container/unit_layout.h"
#include "common/model/tensor_names.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/trunk_file_writer.h"
#include "kernels/rvq.h"

namespace shoal {

// Changes when any weight of any seed does; part of the identity of a synthetic container.
inline constexpr int kSyntheticRevision = 1;

// Every value is a function of the seed and its own place, so that order and threads do not matter.
// Thread-safe.
class SyntheticWeights {
 public:
  explicit SyntheticWeights(uint64_t seed) : seed_(seed) {}

  // Of rvq3.
  LayerCodebooks Codebooks(int64_t layer) const;

  // Writes one unit, sealed, into `unit` (layout.unit_bytes, zeroed): random codes, and row scales
  // by which gate, up and down neither grow nor shrink what goes through them. The codec is rvq3
  // or tcq3, and units have no padding: the widths of all families are multiples of the unit's.
  void WriteUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
                 std::span<std::byte> unit) const;

  // The rows of a trunk tensor, the `index`-th of the model, made on all threads of `pool`. Matrices
  // keep the size of activations, norms are ones, decays of delta attention are those that training
  // begins with, router biases are zeros. This object and what is given outlive it.
  std::unique_ptr<TrunkRows> Rows(const TrunkTensor& tensor, int64_t index, ThreadPool& pool) const;

 private:
  const uint64_t seed_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SYNTH_SYNTHETIC_WEIGHTS_H_

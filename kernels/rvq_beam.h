// Beam search for the codes of one sub-vector; shared by training and encoding. Internal to
// kernels.
#ifndef SHOAL_KERNELS_RVQ_BEAM_H_
#define SHOAL_KERNELS_RVQ_BEAM_H_

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/rvq.h"

namespace shoal {

inline constexpr int kRvqEntries = kRvqStages * kCodebookEntries;  // of all stages together
inline constexpr int kMaxRvqBeam = 16;

// Entries of all stages as floats, [stage * 64 + entry][8].
using RvqFloatBook = std::array<float, kRvqEntries * kSubVectorSize>;

// Searches the four indices whose entries add up nearest to a vector, keeping the `beam` best
// prefixes after every stage. Costs are float sums in a fixed order; ties go to the candidate found
// first. Thread-safe: Search is const.
class RvqBeamSearch {
 public:
  // 1 <= beam <= kMaxRvqBeam.
  RvqBeamSearch(const RvqFloatBook& book, int beam);

  // The 24-bit code (kernels/rvq.h) of the sub-vector x[8].
  uint32_t Search(const float* x) const;

 private:
  struct Candidate {
    float cost = 0;     // |x - sum of entries|^2 - |x|^2
    uint32_t code = 0;  // indices chosen so far
  };
  struct Beam {
    std::array<Candidate, kMaxRvqBeam> best;  // by increasing cost
    int size = 0;
  };

  void Offer(const float* costs, uint32_t prefix, int stage, Beam& next) const;

  int beam_;
  std::vector<float> transposed_;   // [8][256]
  std::vector<float> norms_;        // [256] |c|^2
  std::vector<float> double_gram_;  // [256][256] 2 c_i . c_j
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_BEAM_H_

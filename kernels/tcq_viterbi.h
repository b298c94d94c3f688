// The best symbols for chains of tcq3 (kernels/tcq.h): Viterbi's algorithm in integers, so that every CPU
// finds the same.
#ifndef SHOAL_KERNELS_TCQ_VITERBI_H_
#define SHOAL_KERNELS_TCQ_VITERBI_H_

#include <cstdint>
#include <vector>

namespace shoal {

inline constexpr int64_t kTcqChains = 16;  // searched side by side

// Weights in sixteenths of a unit of the table; those beyond what the table reaches are coded as its end.
inline constexpr int32_t kTcqInputScale = 16;
inline constexpr int32_t kTcqInputLimit = 4 * kTcqInputScale * 64;

// One search at a time: it keeps its buffers (0.6 MiB) between calls. Not
// thread-safe.
class TcqViterbi {
 public:
  TcqViterbi();
  // Of chains x [steps, kTcqChains], |x| <= kTcqInputLimit, the symbols [steps, kTcqChains] of least squared
  // error. What lies more than 128 symbols back is decided, which is many times what the state remembers.
  void Search(const int16_t* x, int64_t steps, uint8_t* symbols);

 private:
  // Writes the symbols of the oldest `count` steps in decisions_, along the best path to the newest.
  void TraceBack(int64_t count, uint8_t* symbols) const;

  std::vector<int32_t> costs_;  // [state][chain]
  std::vector<uint8_t>
      decisions_;            // [step][state][chain]: the oldest three bits of the state before
  int64_t num_decided_ = 0;  // steps in decisions_
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_VITERBI_H_

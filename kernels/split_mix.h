// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): well
// mixed 64-bit values from any seed.
#ifndef SHOAL_KERNELS_SPLIT_MIX_H_
#define SHOAL_KERNELS_SPLIT_MIX_H_

#include <cstdint>

namespace shoal {

// The n-th (from 0) output of the generator started at `seed`.
inline uint64_t SplitMix64(uint64_t seed, uint64_t n) {
  uint64_t z = seed + (n + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// The outputs in order.
class SplitMix64Stream {
 public:
  explicit SplitMix64Stream(uint64_t seed) : seed_(seed) {}
  uint64_t Next() { return SplitMix64(seed_, num_drawn_++); }

 private:
  uint64_t seed_;
  uint64_t num_drawn_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_SPLIT_MIX_H_

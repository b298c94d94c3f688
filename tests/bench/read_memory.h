// The floor of everything that reads memory once.
#ifndef SHOAL_TESTS_BENCH_READ_MEMORY_H_
#define SHOAL_TESTS_BENCH_READ_MEMORY_H_

#include <cstdint>
#include <span>

namespace shoal {

// The sum of all words, of which there is a multiple of 512: the CPU's widest loads in order and nothing that they
// could wait for.
uint64_t SumOfWords(std::span<const uint64_t> words);

}  // namespace shoal

#endif  // SHOAL_TESTS_BENCH_READ_MEMORY_H_

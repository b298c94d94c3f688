// A Kimi-Linear checkpoint of a few hundred kilobytes with random weights and awkward sizes, for
// tests of the converter: a hidden size that is not a multiple of 8, a last unit that is half
// padding, more experts than the codebook training samples, one MLA and two delta-attention layers,
// one of them dense.
#ifndef SHOAL_TESTS_COORDINATOR_CONVERT_SMALL_CHECKPOINT_H_
#define SHOAL_TESTS_COORDINATOR_CONVERT_SMALL_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"

namespace shoal::testing {

struct SmallCheckpoint {
  bool tie_word_embeddings = false;
  bool dense_only = false;
  int64_t vocab_size = 300;  // ids from 512 on have no token
  uint32_t seed = 1;
  // Called for every tensor before it is written; may change name, shape and values, or clear the
  // name to leave it out.
  std::function<void(TensorSpec& spec, std::vector<float>& values)> mutate;

  // Writes config.json, model.safetensors (F32) and the tokenizer's files into `directory`, which
  // is created.
  void WriteTo(const std::string& directory) const;
};

// Every regular file below `directory`, by relative path.
std::map<std::string, std::string> ReadTree(const std::string& directory);
// Names of the files that are not the same in both trees.
std::vector<std::string> DifferentFiles(const std::map<std::string, std::string>& a,
                                        const std::map<std::string, std::string>& b);

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_CONVERT_SMALL_CHECKPOINT_H_

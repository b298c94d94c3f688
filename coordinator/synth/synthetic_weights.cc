#include "coordinator/synth/synthetic_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>

#include "absl/strings/match.h"
#include "kernels/math.h"
#include "kernels/split_mix.h"
#include "kernels/tcq.h"

namespace shoal {
namespace {

// What a stream of random values is for; the first number of its seed.
enum class Purpose : uint64_t { kCodebook = 1, kUnit = 2, kTrunk = 3 };

SplitMix64Stream StreamOf(uint64_t seed, Purpose purpose, std::initializer_list<int64_t> place) {
  uint64_t mixed = SplitMix64(seed, static_cast<uint64_t>(purpose));
  for (const int64_t part : place) {
    mixed = SplitMix64(mixed, static_cast<uint64_t>(part));
  }
  return SplitMix64Stream(mixed);
}

// From 0 up to 1, and from `low` up to `high`.
float Uniform(SplitMix64Stream& random) {
  return static_cast<float>(random.Next() >> 40) * 0x1p-24F;
}
float Uniform(SplitMix64Stream& random, float low, float high) {
  return low + (high - low) * Uniform(random);
}

// Entries of a stage's codebook are integers from -range to range: each stage half as large as the
// one before, as in trained books. The largest sum is 180.
constexpr std::array<int, kRvqStages> kStageRanges = {96, 48, 24, 12};

// Variance of 16 entries of which each is as likely.
double VarianceOf(const uint8_t (&entries)[16]) {
  double sum = 0;
  double squares = 0;
  for (const double entry : entries) {
    sum += entry;
    squares += entry * entry;
  }
  return squares / 16 - sum / 16 * (sum / 16);
}

// Standard deviation of a weight of scale 1 and random codes. rvq3: integers from -a to a have the
// variance a (a + 1) / 3. tcq3: both halves of a window are any four bits.
double WeightDeviation(ExpertCodec codec) {
  if (codec == ExpertCodec::kTcq3) {
    return std::sqrt(VarianceOf(kTcqLow) + VarianceOf(kTcqHigh));
  }
  double variance = 0;
  for (const int range : kStageRanges) {
    variance += range * (range + 1) / 3.0;
  }
  return std::sqrt(variance);
}

RvqCodebook MakeCodebook(SplitMix64Stream random) {
  RvqCodebook book;
  for (int stage = 0; stage < kRvqStages; ++stage) {
    const int range = kStageRanges[static_cast<size_t>(stage)];
    for (int i = 0; i < kCodebookEntries * kSubVectorSize; ++i) {
      const auto draw = static_cast<int>(random.Next() % static_cast<uint64_t>(2 * range + 1));
      book.entry(stage, 0)[i] = static_cast<int8_t>(draw - range);
    }
  }
  return book;
}

void FillRandom(SplitMix64Stream& random, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const uint64_t value = random.Next();
    const size_t size = std::min(bytes.size(), sizeof(value));
    std::memcpy(bytes.data(), &value, size);
    bytes = bytes.subspan(size);
  }
}

// Row scales around the one by which a sum over `fan_in` weights keeps the size of what it sums.
void FillScales(SplitMix64Stream& random, ExpertCodec codec, int64_t fan_in,
                std::span<std::byte> scales) {
  const double mean = 1 / (std::sqrt(static_cast<double>(fan_in)) * WeightDeviation(codec));
  for (size_t at = 0; at < scales.size(); at += sizeof(uint16_t)) {
    const uint16_t scale = FloatToHalf(static_cast<float>(mean) * Uniform(random, 0.5F, 1.5F));
    std::memcpy(scales.data() + at, &scale, sizeof(scale));
  }
}

// How the values of a trunk tensor are drawn.
struct Distribution {
  float low = 0;
  float high = 0;  // low: all are the same
};

Distribution Symmetric(uint64_t fan_in) {
  // Uniform in [-a, a] has the variance a^2 / 3.
  const auto bound = static_cast<float>(std::sqrt(3.0 / static_cast<double>(fan_in)));
  return {-bound, bound};
}

Distribution VectorDistribution(const TrunkTensor& tensor) {
  const absl::string_view name = tensor.name;
  if (absl::EndsWith(name, "norm.weight")) {
    return {1, 1};
  }
  if (absl::EndsWith(name, "conv1d.weight")) {
    return Symmetric(tensor.source_shape.back());
  }
  // The ranges in which training begins: decay rates from 1 to 16, and steps whose softplus is
  // about 0.001 to 0.1.
  if (absl::EndsWith(name, "A_log")) {
    return {0, 2.77F};
  }
  if (absl::EndsWith(name, "dt_bias")) {
    return {-6.9F, -2.25F};
  }
  return {0, 0};  // e_score_correction_bias
}

Distribution DistributionOf(const TrunkTensor& tensor) {
  switch (tensor.role) {
    case TrunkRole::kVector:
      return VectorDistribution(tensor);
    case TrunkRole::kEmbedding:
      return Symmetric(1);
    default:
      return Symmetric(tensor.source_shape.back());
  }
}

class RandomRows final : public TrunkRows {
 public:
  RandomRows(uint64_t seed, const Distribution& distribution, int64_t index, ThreadPool& pool)
      : seed_(seed), distribution_(distribution), index_(index), pool_(pool) {}

  absl::Status Read(int64_t first, int64_t cols, std::span<float> out) override {
    pool_.ParallelFor(static_cast<int64_t>(out.size()) / cols, [&](int64_t row, int /*worker*/) {
      Fill(first + row, out.subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols)));
    });
    return absl::OkStatus();
  }

 private:
  void Fill(int64_t row, std::span<float> out) const {
    SplitMix64Stream random = StreamOf(seed_, Purpose::kTrunk, {index_, row});
    for (float& value : out) {
      value = Uniform(random, distribution_.low, distribution_.high);
    }
  }

  const uint64_t seed_;
  const Distribution distribution_;
  const int64_t index_;
  ThreadPool& pool_;
};

}  // namespace

LayerCodebooks SyntheticWeights::Codebooks(int64_t layer) const {
  return {MakeCodebook(StreamOf(seed_, Purpose::kCodebook, {layer, 0})),
          MakeCodebook(StreamOf(seed_, Purpose::kCodebook, {layer, 1})),
          MakeCodebook(StreamOf(seed_, Purpose::kCodebook, {layer, 2}))};
}

void SyntheticWeights::WriteUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
                                 std::span<std::byte> unit) const {
  SplitMix64Stream random = StreamOf(seed_, Purpose::kUnit, {key.layer, key.expert, unit_index});
  const auto width = static_cast<uint64_t>(layout.unit_width);
  const auto hidden = static_cast<uint64_t>(layout.hidden_size);
  const uint64_t into_bytes = 2 * width * sizeof(uint16_t);  // of gate and up
  FillScales(random, layout.codec, layout.hidden_size,
             unit.subspan(layout.scales_offset, into_bytes));
  FillScales(random, layout.codec, layout.intermediate_size,
             unit.subspan(layout.scales_offset + into_bytes, hidden * sizeof(uint16_t)));
  // Of either codec: units are whole groups and whole positions wide.
  const uint64_t down_bytes = static_cast<uint64_t>(layout.unit_positions) * kRvqPlanes * hidden;
  FillRandom(random, unit.subspan(layout.gate_up_offset,
                                  layout.down_offset - layout.gate_up_offset + down_bytes));
  SealUnit(layout, key, unit_index, unit);
}

std::unique_ptr<TrunkRows> SyntheticWeights::Rows(const TrunkTensor& tensor, int64_t index,
                                                  ThreadPool& pool) const {
  return std::make_unique<RandomRows>(seed_, DistributionOf(tensor), index, pool);
}

}  // namespace shoal

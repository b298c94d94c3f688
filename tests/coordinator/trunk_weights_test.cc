#include "coordinator/model/trunk_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/io/crc32c.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::ConvertSmall;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A container in which everything is consistent but one value of one tensor, which no checksum
// accuses.
class ForgedContainer {
 public:
  ForgedContainer() : directory_(ConvertSmall(SmallCheckpoint(), dir_)) {}

  void SetFirstElement(const std::string& tensor, float value) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(directory_));
    const TrunkEntry* entry = container->manifest().FindTrunk(tensor);
    ASSERT_NE(entry, nullptr);
    std::string trunk = Read("trunk.bin");
    std::memcpy(trunk.data() + entry->offset_bytes, &value, sizeof(value));
    Write("trunk.bin", trunk);
    const auto bytes = std::as_bytes(std::span(trunk)).subspan(entry->offset_bytes);
    const std::string old_manifest = Read("manifest.json");
    const std::string manifest = absl::StrReplaceAll(
        old_manifest, {{absl::StrFormat("%08x", entry->crc32c),
                        absl::StrFormat("%08x", Crc32c(bytes.first(entry->size_bytes)))}});
    Write("manifest.json", manifest);
    Write("SHA256SUMS",
          absl::StrReplaceAll(Read("SHA256SUMS"), {{DigestOf(old_manifest), DigestOf(manifest)}}));
  }
  absl::Status Load() const {
    SHOAL_EXPECT_OK(Container::Open(directory_));
    return Model::Open(directory_, {.budget_bytes = uint64_t{1} << 30}).status();
  }

 private:
  static std::string DigestOf(const std::string& text) {
    return ToHex(Sha256::Of(std::as_bytes(std::span(text))));
  }
  std::string Read(const std::string& name) const {
    const auto text = ReadTextFile(directory_ + "/" + name, uint64_t{1} << 30);
    EXPECT_THAT(text, testing::IsOk());
    return *text;
  }
  void Write(const std::string& name, const std::string& content) const {
    SHOAL_ASSERT_OK(WriteFileAtomically(directory_ + "/" + name, content));
  }

  TempDir dir_;
  std::string directory_;
};

TEST(TrunkWeightsTest, RefusesVectorsThatAreNotFinite) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ForgedContainer forged;
  for (const char* tensor : {"model.norm.weight", "model.layers.1.input_layernorm.weight",
                             "model.layers.0.self_attn.A_log", "model.layers.0.self_attn.dt_bias",
                             "model.layers.0.self_attn.q_conv1d.weight",
                             "model.layers.1.self_attn.kv_a_layernorm.weight",
                             "model.layers.1.block_sparse_moe.gate.e_score_correction_bias"}) {
    for (const float value : {kNan, -kInfinity}) {
      forged.SetFirstElement(tensor, value);
      EXPECT_THAT(forged.Load(), StatusIs(absl::StatusCode::kDataLoss,
                                          AllOf(HasSubstr("trunk.bin"), HasSubstr(tensor),
                                                HasSubstr("element 0"))));
    }
    forged.SetFirstElement(tensor, 0.5F);
    SHOAL_EXPECT_OK(forged.Load());
  }
}

}  // namespace
}  // namespace shoal

// Opening and verifying a small container, whole and damaged.
#include "common/container/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/container/verify.h"
#include "coordinator/convert/converter.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ContainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::SmallCheckpoint().WriteTo(dir_ / "checkpoint");
    SHOAL_ASSERT_OK(Convert(dir_ / "checkpoint", dir_ / "model", {}, nullptr, {}));
  }
  void FlipByte(const std::string& file, int64_t offset) {
    std::fstream stream(dir_ / "model/" + file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const auto byte = static_cast<char>(stream.get());
    stream.seekp(offset);
    stream.put(static_cast<char>(byte ^ 0x20));
    ASSERT_TRUE(stream.good()) << file;
  }
  std::vector<std::string> Problems() {
    auto problems = VerifyContainer(dir_ / "model", nullptr);
    EXPECT_THAT(problems, testing::IsOk());
    return problems.ok() ? *problems : std::vector<std::string>();
  }

  testing::TempDir dir_;
};

TEST_F(ContainerTest, AWholeContainerHasNoProblemAndCountsEveryByteItReads) {
  std::vector<VerifyProgress> reports;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems,
                             VerifyContainer(dir_ / "model", [&](const VerifyProgress& progress) {
                               reports.push_back(progress);
                             }));
  EXPECT_THAT(problems, ElementsAre());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "model"));
  uint64_t once = 0;
  uint64_t banks = 0;
  for (const FileEntry& file : container->manifest().files) {
    once += file.size_bytes;
    banks += file.path.ends_with(".bank") ? file.size_bytes : 0;
  }
  uint64_t trunk = 0;
  for (const TrunkEntry& entry : container->manifest().trunk) {
    trunk += entry.size_bytes;
  }
  ASSERT_FALSE(reports.empty());
  for (const VerifyProgress& report : reports) {
    EXPECT_EQ(report.bytes_total, once + trunk + banks);
  }
  EXPECT_EQ(reports.back().bytes_done, once + trunk + banks);
}

TEST_F(ContainerTest, NamesEveryPlaceOfDamage) {
  FlipByte("trunk.bin", 0);
  EXPECT_THAT(Problems(), ElementsAre(AllOf(HasSubstr("trunk.bin"), HasSubstr("SHA-256")),
                                      AllOf(HasSubstr("tensor model.embed_tokens.weight"),
                                            HasSubstr("checksum"))));
  FlipByte("trunk.bin", 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "model"));
  const int64_t layer = container->manifest().banks.front().layer;
  FlipByte(BankTreeFile(layer), 33);
  EXPECT_THAT(Problems(), Contains(AllOf(HasSubstr(BankTreeFile(layer)), HasSubstr("root"))));
}

TEST_F(ContainerTest, OpenRefusesASmallFileThatDiffers) {
  FlipByte("source_tensors.txt", 10);
  EXPECT_THAT(Container::Open(dir_ / "model"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("source_tensors.txt"), HasSubstr("SHA-256"))));
}

}  // namespace
}  // namespace shoal

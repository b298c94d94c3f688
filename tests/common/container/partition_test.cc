// Opening and verifying the partition of a node, whole, damaged and mixed up.
#include "common/container/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/container/directory_files.h"
#include "common/container/verify.h"
#include "common/io/file.h"
#include "coordinator/pool/shard.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::json;
using ::shoal::testing::MakeSmallContainer;
using ::shoal::testing::ReadTree;
using ::shoal::testing::SmallPlan;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// An f32 unit of 8 rows of 36: header and pad 64, gate and up 2 * 8 * 36 * 4, down 36 * 8 * 4.
constexpr uint64_t kUnitBytes = 64 + 2304 + 1152;
constexpr uint64_t kRecordBytes = 12288;  // of a whole expert: 3 * 3520 = 10560

void Write(const std::string& path, const std::string& content) {
  SHOAL_ASSERT_OK(WriteFileAtomically(path, content));
}

std::string Read(const std::string& path) {
  auto text = ReadTextFile(path, uint64_t{1} << 30);
  EXPECT_THAT(text, testing::IsOk());
  return text.ok() ? *text : "";
}

// One container and the partitions of SmallPlan, made once; each test works on copies.
class PartitionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<TempDir>();
    MakeSmallContainer(made_->path(), ExpertCodec::kF32);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(*made_ / "model"));
    SHOAL_ASSERT_OK(Shard(*container, SmallPlan(container->manifest().identity), *made_ / "pool",
                          {}, nullptr, {}));
  }
  static void TearDownTestSuite() { made_.reset(); }
  void SetUp() override { Restore(); }

  void Restore() {
    fs::remove_all(Dir());
    fs::copy(*made_ / "pool/alpha", Dir(), fs::copy_options::recursive);
  }
  std::string Dir() const { return dir_ / "alpha"; }
  std::string PathOf(absl::string_view file) const { return absl::StrCat(Dir(), "/", file); }

  void FlipByte(const std::string& file, size_t offset) {
    std::string content = Read(PathOf(file));
    ASSERT_LT(offset, content.size());
    content[offset] = static_cast<char>(content[offset] ^ 0x20);
    Write(PathOf(file), content);
  }

  // Makes partition.json (after `change`) and SHA256SUMS agree with the files again, as somebody
  // would who means to deceive.
  void Reseal(const std::function<void(Json&)>& change = nullptr) {
    Json index = Json::parse(Read(PathOf(kPartitionFile)));
    std::map<std::string, std::string> sums;
    for (Json& file : index["files"]) {
      const std::string path = file["path"];
      const std::string content = Read(PathOf(path));
      file["size_bytes"] = content.size();
      sums[path] = file["sha256"] = ToHex(Sha256::Of(content));
    }
    if (change) {
      change(index);
    }
    Write(PathOf(kPartitionFile), index.dump());
    sums[std::string(kPartitionFile)] = ToHex(Sha256::Of(index.dump()));
    Write(PathOf(kDigestsFile), FormatDigests(sums));
  }

  std::vector<std::string> Problems() const {
    auto problems = VerifyPartition(Dir(), nullptr);
    EXPECT_THAT(problems, testing::IsOk());
    return problems.ok() ? *problems : std::vector<std::string>();
  }

  static std::unique_ptr<TempDir> made_;
  TempDir dir_;
};
std::unique_ptr<TempDir> PartitionTest::made_;

constexpr char kFirstBank[] = "slices/units-0000-0002.experts-0000-0009/layer-00001.bank";
constexpr char kSecondBank[] = "slices/units-0000-0003.experts-0009-0014/layer-00002.bank";

TEST_F(PartitionTest, KnowsItsSlicesAndTheirSizes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto partition, Partition::Open(Dir()));
  EXPECT_EQ(partition->name(), "alpha");
  EXPECT_THAT(partition->slices(),
              ElementsAre(ExpertSlice{{0, 2}, {0, 9}}, ExpertSlice{{0, 3}, {9, 14}}));
  EXPECT_EQ(partition->RecordBytes(0), 8192);  // 2 * 3520 = 7040
  EXPECT_EQ(partition->RecordBytes(1), kRecordBytes);
  EXPECT_EQ(partition->BankBytes(0), 9 * 8192);
  EXPECT_EQ(partition->BankBytes(1), 5 * kRecordBytes);
  EXPECT_EQ(partition->BankPath(0, 1), PathOf(kFirstBank));
  EXPECT_EQ(partition->BankPath(1, 2), PathOf(kSecondBank));
}

TEST_F(PartitionTest, HoldsTheContainersOwnUnitsAndNothingElse) {
  const auto files = ReadTree(Dir());
  std::vector<std::string> names;
  for (const auto& [name, content] : files) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("SHA256SUMS", "config.json", "experts/layer-00001.tree",
                                 "experts/layer-00002.tree", "manifest.json", "partition.json",
                                 "slices/units-0000-0002.experts-0000-0009/layer-00001.bank",
                                 "slices/units-0000-0002.experts-0000-0009/layer-00002.bank",
                                 "slices/units-0000-0003.experts-0009-0014/layer-00001.bank",
                                 "slices/units-0000-0003.experts-0009-0014/layer-00002.bank"));
  const auto container = ReadTree(*made_ / "model");
  for (const char* same : {"config.json", "manifest.json", "experts/layer-00001.tree"}) {
    EXPECT_EQ(files.at(same), container.at(same)) << same;
  }
  const std::string& bank = container.at("experts/layer-00001.bank");
  std::string expected;
  for (size_t expert = 0; expert < 9; ++expert) {
    expected += bank.substr(expert * kRecordBytes, 2 * kUnitBytes);
    expected.resize((expert + 1) * 8192, '\0');
  }
  EXPECT_EQ(files.at(kFirstBank), expected);
  EXPECT_EQ(files.at(kSecondBank),
            container.at("experts/layer-00002.bank").substr(9 * kRecordBytes));
}

TEST_F(PartitionTest, VerifyFindsNoProblemAndCountsEveryByteItReads) {
  std::vector<VerifyProgress> reports;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto problems,
      VerifyPartition(Dir(), [&](const VerifyProgress& progress) { reports.push_back(progress); }));
  EXPECT_THAT(problems, ElementsAre());
  uint64_t bytes = 0;  // banks are read twice
  for (const auto& [name, content] : ReadTree(Dir())) {
    const bool listed = name != kPartitionFile && name != kDigestsFile;
    bytes += (listed ? 1 : 0) * (name.ends_with(".bank") ? 2 : 1) * content.size();
  }
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports.front().bytes_total, bytes);
  EXPECT_EQ(reports.back().bytes_done, bytes);
}

TEST_F(PartitionTest, AnyFlippedBitIsFound) {
  for (const auto& [name, content] : ReadTree(Dir())) {
    for (const size_t offset : {size_t{0}, content.size() / 2, content.size() - 1}) {
      Restore();
      FlipByte(name, offset);
      // A flip in SHA256SUMS may make a line that is not looked for, which is damage all the same.
      EXPECT_THAT(Problems(),
                  Contains(AnyOf(HasSubstr(name), HasSubstr("SHA-256"), HasSubstr(kDigestsFile))))
          << name << " at " << offset;
      if (!name.ends_with(".bank") && name != kDigestsFile) {
        EXPECT_THAT(Partition::Open(Dir()), StatusIs(absl::StatusCode::kDataLoss,
                                                     AllOf(HasSubstr(name), HasSubstr("SHA-256"))));
      }
    }
  }
}

TEST_F(PartitionTest, NamesAFileThatIsTruncatedOrGone) {
  for (const auto& [name, content] : ReadTree(Dir())) {
    if (name == kPartitionFile || name == kDigestsFile) {
      continue;
    }
    Restore();
    fs::resize_file(PathOf(name), content.size() - 1);
    EXPECT_THAT(Partition::Open(Dir()), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(name)));
    fs::remove(PathOf(name));
    EXPECT_THAT(Partition::Open(Dir()), StatusIs(absl::StatusCode::kNotFound,
                                                 AllOf(HasSubstr(name), HasSubstr("incomplete"),
                                                       HasSubstr("copy the file"))));
  }
}

TEST_F(PartitionTest, RefusesAnotherVersionByNumber) {
  Reseal([](Json& index) { index["version"] = 2; });
  EXPECT_THAT(Partition::Open(Dir()),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("partition.json: version 2"), HasSubstr("version 1"))));
}

TEST_F(PartitionTest, RefusesTheManifestOfAnotherContainer) {
  MakeSmallContainer(dir_ / "other", ExpertCodec::kF32, /*seed=*/5);
  fs::copy_file(dir_ / "other/model/manifest.json", PathOf("manifest.json"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(Partition::Open(Dir()),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest.json")));
  Reseal();
  EXPECT_THAT(Partition::Open(Dir()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("partition.json: identity"), HasSubstr("two containers"))));
}

TEST_F(PartitionTest, RefusesAnIndexThatContradictsItself) {
  const auto refuses = [this](const std::function<void(Json&)>& change, absl::StatusCode code,
                              const std::string& message) {
    Restore();
    Reseal(change);
    EXPECT_THAT(Partition::Open(Dir()),
                StatusIs(code, AllOf(HasSubstr("partition.json"), HasSubstr(message))));
  };
  const auto malformed = absl::StatusCode::kInvalidArgument;
  const auto loss = absl::StatusCode::kDataLoss;
  refuses([](Json& index) { index["format"] = "shoal-container"; }, malformed, "format");
  refuses([](Json& index) { index["name"] = "../alpha"; }, malformed, "is no name");
  refuses([](Json& index) { index["identity"] = "12"; }, malformed, "identity");
  refuses([](Json& index) { index.erase("slices"); }, malformed, "slices");
  refuses([](Json& index) { index["slices"][0]["units"] = {0, 4}; }, malformed, "not a part of");
  refuses([](Json& index) { index["slices"][0]["experts"] = {0, 15}; }, malformed, "not a part of");
  refuses([](Json& index) { index["slices"][0]["experts"] = {0, 10}; }, malformed, "given twice");
  refuses([](Json& index) { index["slices"][0]["units"] = {0, 3}; }, loss, "is called for");
  refuses([](Json& index) { std::swap(index["slices"][0], index["slices"][1]); }, loss, "order");
  refuses([](Json& index) { index["slices"] = Json::array(); }, loss, "one or more");
  refuses([](Json& index) { index["files"].erase(3); }, loss, "is called for");
  refuses([](Json& index) { index["files"].push_back(index["files"][0]); }, loss, "nothing");
  refuses([](Json& index) { index["files"][0]["path"] = "../config.json"; }, loss, "config.json");
  refuses([](Json& index) { index["files"][5]["size_bytes"] = 4096; }, loss, "size or sha256");
  refuses([](Json& index) { index["files"][5]["size_bytes"] = -1; }, malformed, "size_bytes");
  refuses([](Json& index) { index["files"][1]["sha256"] = std::string(64, '0'); }, loss,
          "size or sha256");
}

// With digests that were made to fit, only the tree and the units' own headers tell.
TEST_F(PartitionTest, UnitsThatAreNotTheManifestsAreFound) {
  std::string bank = Read(PathOf(kFirstBank));
  std::swap_ranges(bank.begin(), bank.begin() + 8192, bank.begin() + 8192);
  Write(PathOf(kFirstBank), bank);
  Reseal();
  SHOAL_EXPECT_OK(Partition::Open(Dir()));
  EXPECT_THAT(Problems(), Contains(AllOf(HasSubstr(kFirstBank), HasSubstr("expert 0 unit 0"),
                                         HasSubstr("holds layer 1 expert 1 unit 0"))));

  // A unit that is whole, in its place, and has other weights.
  Restore();
  bank = Read(PathOf(kFirstBank));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto partition, Partition::Open(Dir()));
  bank[200] = static_cast<char>(bank[200] ^ 1);
  SealUnit(partition->manifest().unit_layout, {1, 0}, 0,
           std::as_writable_bytes(std::span(bank)).first(kUnitBytes));
  Write(PathOf(kFirstBank), bank);
  Reseal();
  EXPECT_THAT(Problems(), ElementsAre(AllOf(HasSubstr("layer 1 expert 0 unit 0"),
                                            HasSubstr("differs from its digest in the tree"))));

  Restore();
  FlipByte(kFirstBank, 8191);
  Reseal();
  EXPECT_THAT(Problems(), ElementsAre(AllOf(HasSubstr("expert 0"), HasSubstr("padding"))));
}

TEST_F(PartitionTest, FilesThatDoNotBelongAreFound) {
  Write(PathOf("slices/trunk.bin"), "x");
  EXPECT_THAT(Problems(),
              ElementsAre(AllOf(HasSubstr("slices/trunk.bin"), HasSubstr("does not belong"))));
}

TEST_F(PartitionTest, WithoutItsIndexItIsNamedAsWhatItIs) {
  std::filesystem::remove(PathOf("partition.json"));
  EXPECT_THAT(Container::Open(Dir()),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("holds slices and no partition.json"),
                             HasSubstr("Copy that file too"), HasSubstr("shoal fill"))));
}

TEST_F(PartitionTest, AContainerAndAPartitionAreNotTakenForEachOther) {
  EXPECT_THAT(Container::Open(Dir()), StatusIs(absl::StatusCode::kFailedPrecondition,
                                               AllOf(HasSubstr(Dir()), HasSubstr("partition"))));
  EXPECT_THAT(
      Partition::Open(*made_ / "model"),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("model"), HasSubstr("shoal shard"))));
  EXPECT_THAT(Partition::Open("/nowhere"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere")));
}

TEST_F(PartitionTest, AStopEndsVerification) {
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(VerifyPartition(Dir(), nullptr, stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
}

}  // namespace
}  // namespace shoal

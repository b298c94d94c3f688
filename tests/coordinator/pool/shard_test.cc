// Making partitions: the same bytes however often it was interrupted, and nothing taken on trust.
#include "coordinator/pool/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/container/partition.h"
#include "common/container/verify.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ::shoal::testing::DifferentFiles;
using ::shoal::testing::MakeSmallContainer;
using ::shoal::testing::ReadTree;
using ::shoal::testing::SmallPlan;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kBanks = 8;  // two slices of each of two nodes, two layers
constexpr char kBank[] = "slices/units-0000-0002.experts-0000-0009/layer-00001.bank";

void FlipByte(const std::string& path, int64_t offset) {
  std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(offset);
  const auto byte = static_cast<char>(stream.get());
  stream.seekp(offset);
  stream.put(static_cast<char>(byte ^ 0x20));
  ASSERT_TRUE(stream.good()) << path;
}

class ShardTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<TempDir>();
    MakeSmallContainer(made_->path(), ExpertCodec::kRvq3);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(*made_ / "model"));
    SHOAL_ASSERT_OK(Shard(*container, SmallPlan(container->manifest().identity), *made_ / "pool",
                          {}, nullptr, {}));
  }
  static void TearDownTestSuite() { made_.reset(); }
  void SetUp() override { Use(*made_ / "model"); }

  void Use(const std::string& directory) {
    SHOAL_ASSERT_OK_AND_ASSIGN(container_, Container::Open(directory));
    plan_ = SmallPlan(container_->manifest().identity);
  }
  std::string Out() const { return dir_ / "out"; }
  absl::StatusOr<ShardReport> Run(const ShardOptions& options = {}) {
    return Shard(*container_, plan_, Out(), options, nullptr, {});
  }
  // Stops at the n-th report of progress. Whether it got through before.
  bool RunUntil(int reports) {
    std::stop_source stop;
    const auto report = Shard(
        *container_, plan_, Out(), {},
        [&](const ShardProgress&) {
          if (--reports == 0) {
            stop.request_stop();
          }
        },
        stop.get_token());
    EXPECT_TRUE(report.ok() || absl::IsCancelled(report.status())) << report.status();
    return report.ok();
  }
  void ExpectAsUndisturbed() {
    EXPECT_THAT(DifferentFiles(ReadTree(Out()), ReadTree(*made_ / "pool")), IsEmpty());
  }

  static std::unique_ptr<TempDir> made_;
  TempDir dir_;
  std::unique_ptr<Container> container_;
  PoolPlan plan_;
};
std::unique_ptr<TempDir> ShardTest::made_;

TEST_F(ShardTest, EveryNodeGetsAWholePartition) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Run());
  ASSERT_EQ(report.nodes.size(), 2);
  for (size_t i = 0; i < 2; ++i) {
    const ShardedNode& node = report.nodes[i];
    EXPECT_EQ(node.name, plan_.nodes[i].name);
    EXPECT_EQ(node.banks_copied, kBanks / 2);
    EXPECT_EQ(node.banks_kept, 0);
    EXPECT_THAT(VerifyPartition(node.directory, nullptr).value(), IsEmpty());
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto partition, Partition::Open(node.directory));
    EXPECT_EQ(partition->name(), node.name);
    EXPECT_EQ(partition->slices(), node.slices);
    uint64_t bytes = 0;
    for (const auto& [name, content] : ReadTree(node.directory)) {
      bytes += name == kPartitionFile || name == kDigestsFile ? 0 : content.size();
    }
    EXPECT_EQ(node.partition_bytes, bytes);
    EXPECT_EQ(fs::exists(node.directory + ".partial"), false);
  }
  // Its own share and the copy of another's, by first unit.
  EXPECT_THAT(report.nodes[1].slices,
              ElementsAre(ExpertSlice{{0, 1}, {0, 9}}, ExpertSlice{{2, 3}, {0, 9}}));
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, MakesOneNodeWhereOneIsNamed) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Run({.only_node = "beta"}));
  ASSERT_EQ(report.nodes.size(), 1);
  EXPECT_EQ(report.nodes[0].name, "beta");
  EXPECT_FALSE(fs::exists(Out() + "/alpha"));
  EXPECT_THAT(Run({.only_node = "gamma"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"gamma\""), HasSubstr("alpha, beta"))));
}

TEST_F(ShardTest, TheCoordinatorNeedsNoPartition) {
  plan_.nodes[1].address = std::string(kOwnAddress);
  plan_.nodes[1].copies.clear();
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Run());
  ASSERT_EQ(report.nodes.size(), 1);
  EXPECT_EQ(report.nodes[0].name, "alpha");
  EXPECT_FALSE(fs::exists(Out() + "/beta"));
}

TEST_F(ShardTest, GoesOnWhereItWasStoppedAndCopiesNothingTwice) {
  int stops = 0;
  int64_t kept_before = 0;
  for (int reports = 1; !RunUntil(reports); reports += 3) {
    ++stops;
    ASSERT_LT(stops, 100);
    int64_t finished = 0;
    for (const auto& [name, content] : ReadTree(Out())) {
      finished += name.ends_with(".bank") ? 1 : 0;
      EXPECT_FALSE(name.ends_with(".tmp")) << name;
    }
    EXPECT_GE(finished, kept_before);
    kept_before = finished;
  }
  EXPECT_GE(stops, 5);
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, CountsWhatItKeptAndWhatItCopied) {
  ASSERT_FALSE(RunUntil(15));
  int64_t finished = 0;
  for (const auto& [name, content] : ReadTree(Out() + "/alpha.partial")) {
    finished += name.ends_with(".bank") ? 1 : 0;
  }
  ASSERT_GT(finished, 0);
  uint64_t kept_bytes = 0;
  uint64_t done = 0;
  uint64_t total = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Shard(*container_, plan_, Out(), {},
                                                             [&](const ShardProgress& progress) {
                                                               kept_bytes = progress.bytes_kept;
                                                               done = progress.bytes_done;
                                                               total = progress.bytes_total;
                                                             },
                                                             {}));
  EXPECT_EQ(report.nodes[0].banks_kept, finished);
  EXPECT_EQ(report.nodes[0].banks_copied, kBanks / 2 - finished);
  EXPECT_GT(kept_bytes, 0);
  EXPECT_EQ(done, total);
  uint64_t bank_bytes = 0;
  for (const auto& [name, content] : ReadTree(Out())) {
    bank_bytes += name.ends_with(".bank") ? content.size() : 0;
  }
  EXPECT_EQ(total, bank_bytes);
}

TEST_F(ShardTest, DoesNotTrustWhatAnEarlierRunLeft) {
  ASSERT_FALSE(RunUntil(25));  // in the second layer: the banks of the first are finished
  const std::string bank = Out() + "/alpha.partial/partition/" + kBank;
  ASSERT_TRUE(fs::exists(bank));
  FlipByte(bank, 300);
  const std::string other = absl::StrCat(Out(), "/alpha.partial/partition/slices/",
                                         "units-0000-0003.experts-0009-0014/layer-00001.bank");
  ASSERT_TRUE(fs::exists(other));
  fs::resize_file(other, 4096);
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Run());
  EXPECT_THAT(report.nodes[0].remade_files,
              ElementsAre(kBank, HasSubstr("units-0000-0003.experts-0009-0014/layer-00001.bank")));
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, SurvivesAKillAtAnyMoment) {
  for (int run = 0; run < 12; ++run) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      ::_exit(Run().ok() ? 0 : 1);
    }
    ::usleep(1500 * static_cast<useconds_t>(run));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    for (const char* name : {"alpha", "beta"}) {
      if (fs::exists(absl::StrCat(Out(), "/", name))) {
        EXPECT_THAT(DifferentFiles(ReadTree(absl::StrCat(Out(), "/", name)),
                                   ReadTree(*made_ / absl::StrCat("pool/", name))),
                    IsEmpty());
      }
    }
  }
  SHOAL_ASSERT_OK(Run());
  SHOAL_ASSERT_OK(Run());  // and takes away what was left beside
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, SaysWhatIsThereAlready) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport first, Run({.only_node = "alpha"}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report, Run());
  EXPECT_TRUE(report.nodes[0].already_there);
  EXPECT_EQ(report.nodes[0].banks_copied, 0);
  EXPECT_EQ(report.nodes[0].partition_bytes, first.nodes[0].partition_bytes);
  EXPECT_FALSE(report.nodes[1].already_there);
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, TakesOneThatHoldsMore) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport first, Run());
  PoolPlan less = plan_;
  less.nodes[1].copies.clear();
  SHOAL_ASSERT_OK_AND_ASSIGN(const ShardReport report,
                             Shard(*container_, less, Out(), {}, nullptr, {}));
  EXPECT_TRUE(report.nodes[1].already_there);
  EXPECT_EQ(report.nodes[1].partition_bytes, first.nodes[1].partition_bytes);
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, NeverOverwritesSomethingElse) {
  SHOAL_ASSERT_OK(Run());
  PoolPlan other = plan_;
  other.nodes[1].copies.front().units.end = 2;
  EXPECT_THAT(Shard(*container_, other, Out(), {}, nullptr, {}),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr("out/beta"), HasSubstr("with other slices"),
                             HasSubstr("remove it or choose another --out"))));
  fs::remove(Out() + "/alpha/config.json");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kAlreadyExists,
                              AllOf(HasSubstr("not a whole partition"), HasSubstr("config.json"))));
  fs::remove_all(Out() + "/alpha");
  fs::create_directory(Out() + "/alpha");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("out/alpha")));
}

TEST_F(ShardTest, DoesNotGoOnWithAnotherPlansWork) {
  ASSERT_FALSE(RunUntil(15));
  plan_.nodes[0].slices[0].units.end = 1;
  plan_.nodes[1].slices[0].units.begin = 1;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("alpha.partial"), HasSubstr("other slices"),
                                    HasSubstr("remove it to start again"))));
  fs::remove_all(Out());
  fs::create_directories(Out() + "/alpha.partial/photos");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("photos"), HasSubstr("remove or rename"))));
}

TEST_F(ShardTest, RefusesAPlanThatDoesNotFit) {
  plan_.nodes[0].slices[0].units.end = 1;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument,
                              HasSubstr("units 1-1 of experts 0-8 are computed by no node")));
  EXPECT_FALSE(fs::exists(Out()));
}

TEST_F(ShardTest, ADamagedUnitIsNamedAndNotCopied) {
  fs::copy(*made_ / "model", dir_ / "model", fs::copy_options::recursive);
  Use(dir_ / "model");
  const UnitLayout& layout = container_->manifest().unit_layout;
  const auto unit_place = static_cast<int64_t>(4 * layout.record_bytes + layout.unit_bytes);
  FlipByte(dir_ / "model/experts/layer-00002.bank", unit_place + 100);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss,
                              AllOf(HasSubstr("model/experts/layer-00002.bank"),
                                    HasSubstr("layer 2 expert 4 unit 1"))));
  EXPECT_FALSE(fs::exists(Out() + "/alpha"));
  FlipByte(dir_ / "model/experts/layer-00002.bank", unit_place + 100);
  FlipByte(dir_ / "model/experts/layer-00002.tree", 40);
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss,
                              AllOf(HasSubstr("layer-00002.tree"), HasSubstr("root"))));
  FlipByte(dir_ / "model/experts/layer-00002.tree", 40);
  SHOAL_ASSERT_OK(Run());
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, ComparesTheFreeSpaceBeforeAnythingIsWritten) {
  uint64_t needed = 0;
  for (const auto& [name, content] : ReadTree(*made_ / "pool")) {
    needed += content.size();
  }
  const auto with_free = [](uint64_t bytes) {
    return ShardOptions{.only_node = "", .free_disk_bytes = [bytes](const std::string&) {
                          return absl::StatusOr<uint64_t>(bytes);
                        }};
  };
  const auto refused = Run(with_free(needed));
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("the partitions need another "),
                                      HasSubstr(absl::StrCat("has ", needed, " bytes")))));
  EXPECT_FALSE(fs::exists(Out()));
  // What it says it needs is enough, and not much more than the files.
  uint64_t said = 0;
  const std::string message(refused.status().message());
  ASSERT_EQ(std::sscanf(message.c_str(), "the partitions need another %lu bytes", &said), 1);
  EXPECT_GT(said, needed);
  EXPECT_LT(said, needed + 2 * 20 * 4096 + 65536);
  SHOAL_EXPECT_OK(Run(with_free(said)));
}

TEST_F(ShardTest, AFullDiskIsAnErrorThatCanBeGoneOnFrom) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {30000, 30000};  // more than the small files, less than a bank
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto result = Run();
    const std::string message(result.status().message());
    ::_exit(absl::IsResourceExhausted(result.status()) &&
                    message.find("run the same command again") != std::string::npos &&
                    message.find(".bank") != std::string::npos
                ? 0
                : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fs::exists(Out() + "/alpha"));
  SHOAL_ASSERT_OK(Run());
  ExpectAsUndisturbed();
}

TEST_F(ShardTest, RefusesTheContainerAsTheDirectoryOfPartitions) {
  for (const std::string& out : {*made_ / "model/", std::string("/"), std::string()}) {
    EXPECT_THAT(Shard(*container_, plan_, out, {}, nullptr, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("cannot be")));
  }
  EXPECT_THAT(Shard(*container_, plan_, "/nowhere/at/all", {}, nullptr, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/at")));
}

}  // namespace
}  // namespace shoal

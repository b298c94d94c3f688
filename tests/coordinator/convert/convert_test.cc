#include "coordinator/convert/converter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/container.h"
#include "common/container/verify.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::shoal::testing::DifferentFiles;
using ::shoal::testing::ReadTree;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ConvertOptions Options(int num_jobs = 1) {
  ConvertOptions options;
  options.trunk = TrunkType::kQ8;
  options.num_jobs = num_jobs;
  return options;
}

// One small checkpoint and its container, made without interruption, for the whole suite.
class ConvertTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    suite_dir_ = new TempDir();
    SmallCheckpoint().WriteTo(Source());
    SHOAL_ASSERT_OK(
        Convert(Source(), *suite_dir_ / "reference", Options(),
                [](const ConvertProgress& progress) { steps_->push_back(progress.step); }, {}));
    *reference_ = ReadTree(*suite_dir_ / "reference");
  }
  static void TearDownTestSuite() { delete suite_dir_; }

  static std::string Source() { return *suite_dir_ / "source"; }
  static std::string ReferenceDir() { return *suite_dir_ / "reference"; }
  static const std::map<std::string, std::string>& Reference() { return *reference_; }
  // The names of all progress calls of an uninterrupted run, in order.
  static const std::vector<std::string>& Steps() { return *steps_; }

  std::string Target() const { return dir_ / "out"; }
  std::string Partial() const { return dir_ / "out.partial"; }

  absl::StatusOr<ConvertReport> Run(const ConvertOptions& options = Options()) const {
    return Convert(Source(), Target(), options, nullptr, {});
  }
  // Runs until the `calls`-th progress call, then asks to stop.
  absl::StatusOr<ConvertReport> RunAndStopAt(size_t calls) const {
    std::stop_source stop;
    size_t count = 0;
    return Convert(
        Source(), Target(), Options(),
        [&](const ConvertProgress& /*progress*/) {
          if (++count == calls) {
            stop.request_stop();
          }
        },
        stop.get_token());
  }
  // Position (from 1) of the first progress call of that name.
  static size_t CallOf(const std::string& step) {
    return std::find(Steps().begin(), Steps().end(), step) - Steps().begin() + 1;
  }
  // Runs `work` in a child process and returns its wait status.
  template <typename Work>
  static int InChild(Work work) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::_exit(work());
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return status;
  }

  TempDir dir_;

 private:
  static TempDir* suite_dir_;
  static std::map<std::string, std::string>* const reference_;
  static std::vector<std::string>* const steps_;
};
TempDir* ConvertTest::suite_dir_ = nullptr;
std::map<std::string, std::string>* const ConvertTest::reference_ =
    new std::map<std::string, std::string>;
std::vector<std::string>* const ConvertTest::steps_ = new std::vector<std::string>;

TEST_F(ConvertTest, LeavesAContainerInWhichVerifyFindsNothing) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(ReferenceDir(), nullptr));
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_FALSE(fs::exists(ReferenceDir() + ".partial"));
  EXPECT_EQ(Reference().at("config.json"), ReadTree(Source()).at("config.json"));
  EXPECT_EQ(Reference().at("tiktoken.model"), ReadTree(Source()).at("tiktoken.model"));
}

TEST_F(ConvertTest, NumberOfJobsDoesNotChangeAByte) {
  for (const int jobs : {2, 4}) {
    const std::string target = dir_ / absl::StrCat("jobs", jobs);
    SHOAL_ASSERT_OK(Convert(Source(), target, Options(jobs), nullptr, {}));
    EXPECT_THAT(DifferentFiles(Reference(), ReadTree(target)), IsEmpty()) << jobs;
  }
}

TEST_F(ConvertTest, TrellisCodesDependOnTheSeedAndNotOnTheJobs) {
  ConvertOptions options = Options(1);
  options.experts = ExpertCodec::kTcq3;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport one,
                             Convert(Source(), dir_ / "one", options, nullptr, {}));
  const auto files = ReadTree(dir_ / "one");
  EXPECT_FALSE(files.contains("codebooks.bin"));
  EXPECT_LT(one.layers[0].relative_error, 0.2);
  options.num_jobs = 3;
  SHOAL_ASSERT_OK(Convert(Source(), dir_ / "three", options, nullptr, {}));
  EXPECT_THAT(DifferentFiles(files, ReadTree(dir_ / "three")), IsEmpty());
  options.seed = 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport other,
                             Convert(Source(), dir_ / "seed", options, nullptr, {}));
  EXPECT_THAT(DifferentFiles(files, ReadTree(dir_ / "seed")), ::testing::Contains(BankFile(1)));
  EXPECT_NE(other.identity, one.identity);
}

TEST_F(ConvertTest, SeedChangesTheCodebooksAndTheIdentity) {
  ConvertOptions options = Options();
  options.experts = ExpertCodec::kRvq3;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport first,
                             Convert(Source(), dir_ / "first", options, nullptr, {}));
  options.seed = 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport other, Run(options));
  EXPECT_NE(other.identity, first.identity);
  EXPECT_THAT(DifferentFiles(ReadTree(dir_ / "first"), ReadTree(Target())),
              AllOf(::testing::Contains("codebooks.bin"), Not(::testing::Contains("trunk.bin"))));
}

TEST_F(ConvertTest, ProgressEndsAtTheBytesOfAllSourceTensors) {
  ConvertProgress last;
  SHOAL_ASSERT_OK(Convert(Source(), Target(), Options(),
                          [&last](const ConvertProgress& progress) {
                            EXPECT_GE(progress.source_bytes_done, last.source_bytes_done);
                            last = progress;
                          },
                          {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(Source()));
  uint64_t total = 0;
  for (const auto& [name, info] : checkpoint->tensors()) {
    total += info.size_bytes;
  }
  EXPECT_EQ(last.source_bytes_total, total);
  EXPECT_EQ(last.source_bytes_done, total);
  EXPECT_EQ(last.source_bytes_resumed, 0);
}

TEST_F(ConvertTest, SourceDigestsAreThoseOfTheTensorsBytes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(Source()));
  std::map<std::string, std::string> expected;
  for (const auto& [name, info] : checkpoint->tensors()) {
    std::vector<std::byte> raw(info.size_bytes);
    SHOAL_ASSERT_OK(checkpoint->ReadRaw(info, raw));
    std::string shape;
    for (const uint64_t size : info.shape) {
      absl::StrAppend(&shape, shape.empty() ? "" : ",", size);
    }
    expected[name] = absl::StrCat(ToHex(Sha256::Of(raw)), " F32 [", shape, "] ", name, "\n");
  }
  std::string text;
  for (const auto& [name, line] : expected) {
    text += line;
  }
  EXPECT_EQ(Reference().at("source_tensors.txt"), text);
}

// --- interruption

TEST_F(ConvertTest, ResumesAfterStopAtEveryStep) {
  std::set<std::string> seen;
  for (size_t call = 1; call <= Steps().size(); ++call) {
    if (!seen.insert(Steps()[call - 1]).second) {
      continue;
    }
    SCOPED_TRACE(Steps()[call - 1]);
    ASSERT_THAT(RunAndStopAt(call),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("run the same command again")));
    EXPECT_FALSE(fs::exists(Target()));
    SHOAL_ASSERT_OK(Run(Options(2)));
    EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
    EXPECT_FALSE(fs::exists(Partial()));
    fs::remove_all(Target());
  }
}

TEST_F(ConvertTest, ResumesAfterKillAtEveryStep) {
  std::set<std::string> seen;
  for (size_t call = 1; call <= Steps().size(); ++call) {
    if (!seen.insert(Steps()[call - 1]).second) {
      continue;
    }
    SCOPED_TRACE(Steps()[call - 1]);
    const int status = InChild([&] {
      size_t count = 0;
      const auto result = Convert(Source(), Target(), Options(),
                                  [&](const ConvertProgress& /*progress*/) {
                                    if (++count == call) {
                                      ::raise(SIGKILL);
                                    }
                                  },
                                  {});
      return result.ok() ? 0 : 1;
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_FALSE(fs::exists(Target()));
    SHOAL_ASSERT_OK(Run());
    EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
    EXPECT_FALSE(fs::exists(Partial()));
    fs::remove_all(Target());
  }
}

TEST_F(ConvertTest, ResumesAfterKillsAtAnyMoment) {
  // Each run is given a little longer than the one before, so the moments of death sweep the whole
  // conversion.
  int deaths = 0;
  for (int run = 0; !fs::exists(Target()); ++run) {
    ASSERT_LT(run, 2000);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      ::_exit(Convert(Source(), Target(), Options(2), nullptr, {}).ok() ? 0 : 1);
    }
    ::usleep(1000 * run);
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    deaths += WIFSIGNALED(status) ? 1 : 0;
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  }
  EXPECT_GT(deaths, 0);
  SHOAL_EXPECT_OK(Run());
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
  EXPECT_FALSE(fs::exists(Partial()));
}

TEST_F(ConvertTest, KeepsFinishedFilesAndCountsTheirBytesAsResumed) {
  ASSERT_FALSE(RunAndStopAt(CallOf("layer 1 recorded")).ok());
  const std::string bank = Partial() + "/container/" + BankFile(1);
  struct stat before {};
  ASSERT_EQ(::stat(bank.c_str(), &before), 0);
  ConvertProgress last;
  SHOAL_ASSERT_OK(Convert(Source(), Target(), Options(),
                          [&last](const ConvertProgress& progress) { last = progress; }, {}));
  struct stat after {};
  ASSERT_EQ(::stat((Target() + "/" + BankFile(1)).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(last.source_bytes_done, last.source_bytes_total);
  // All but layer 2: 14 experts of three matrices of 20 x 36 floats.
  EXPECT_EQ(last.source_bytes_resumed, last.source_bytes_total - 14 * 3 * 20 * 36 * 4);
}

TEST_F(ConvertTest, MakesAKeptFileAgainWhenAByteOfItChanged) {
  ASSERT_FALSE(RunAndStopAt(CallOf("layer 1 recorded")).ok());
  const std::string bank = Partial() + "/container/" + BankFile(1);
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string content, ReadTextFile(bank, 1 << 30));
  content[1000] ^= 1;
  SHOAL_ASSERT_OK(WriteFileAtomically(bank, content));
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport report, Run());
  EXPECT_THAT(report.remade_files, ElementsAre(BankFile(1)));
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

TEST_F(ConvertTest, MakesAKeptFileAgainWhenItIsMissing) {
  ASSERT_FALSE(RunAndStopAt(CallOf("layer 1 recorded")).ok());
  fs::remove(Partial() + "/container/trunk.bin");
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport report, Run());
  EXPECT_THAT(report.remade_files, ElementsAre("trunk.bin"));
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

TEST_F(ConvertTest, CutsOffALedgerLineThatWasTornByAPowerCut) {
  ASSERT_FALSE(RunAndStopAt(CallOf("layer 1 recorded")).ok());
  const std::string path = Partial() + "/convert.ledger";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string ledger, ReadTextFile(path, 1 << 30));
  for (const std::string& torn :
       {ledger.substr(0, ledger.size() - 1000), ledger.substr(0, ledger.size() - 1000) + "\n",
        ledger + std::string(100, '\0')}) {
    SHOAL_ASSERT_OK(WriteFileAtomically(path, torn));
    // A stop at the first check leaves the ledger cut.
    ASSERT_THAT(RunAndStopAt(1), StatusIs(absl::StatusCode::kCancelled, HasSubstr("")));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string cut, ReadTextFile(path, 1 << 30));
    EXPECT_TRUE(ledger.starts_with(cut) && cut.ends_with("\n"));
  }
  SHOAL_ASSERT_OK(Run());
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

TEST_F(ConvertTest, RefusesALedgerThatIsDamagedInTheMiddle) {
  ASSERT_FALSE(RunAndStopAt(CallOf("layer 1 recorded")).ok());
  const std::string path = Partial() + "/convert.ledger";
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string ledger, ReadTextFile(path, 1 << 30));
  ledger[ledger.find('\n') + 1] = 'x';
  SHOAL_ASSERT_OK(WriteFileAtomically(path, ledger));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss,
                              AllOf(HasSubstr("convert.ledger"), HasSubstr("line 2"))));
}

TEST_F(ConvertTest, RemovesWhatAKillRightAfterTheRenameLeft) {
  ASSERT_FALSE(RunAndStopAt(CallOf("publish")).ok());
  fs::rename(Partial() + "/container", Target());
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport report, Run());
  EXPECT_TRUE(report.already_converted);
  EXPECT_FALSE(fs::exists(Partial()));
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

// --- what is in the way

TEST_F(ConvertTest, ReportsADirectoryThatIsAlreadyThisConversion) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport first, Run());
  EXPECT_FALSE(first.already_converted);
  ConvertOptions any_trunk = Options();
  any_trunk.trunk.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport second,
                             Convert(Source(), Target() + "/", any_trunk, nullptr, {}));
  EXPECT_TRUE(second.already_converted);
  EXPECT_EQ(second.identity, first.identity);
  EXPECT_EQ(second.container_bytes, first.container_bytes);
  ASSERT_EQ(second.layers.size(), 2);
  EXPECT_EQ(second.layers[1].layer, 2);
  EXPECT_EQ(second.layers[1].relative_error, first.layers[1].relative_error);
}

TEST_F(ConvertTest, RefusesADirectoryConvertedWithOtherSettingsByName) {
  SHOAL_ASSERT_OK(Run());
  ConvertOptions options = Options();
  options.trunk = TrunkType::kF32;
  EXPECT_THAT(Run(options),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--trunk q8 (now f32)")));
  SmallCheckpoint other;
  other.tie_word_embeddings = true;
  other.WriteTo(dir_ / "other");
  EXPECT_THAT(Convert(dir_ / "other", Target(), Options(), nullptr, {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("another checkpoint")));
}

TEST_F(ConvertTest, RefusesADirectoryThatIsNotAContainer) {
  fs::create_directory(Target());
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("not a whole container")));
  SHOAL_ASSERT_OK(WriteFileAtomically(Target() + "/notes.txt", "mine"));
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("not a whole container")));
  EXPECT_EQ(ReadTree(Target()).at("notes.txt"), "mine");
  EXPECT_FALSE(fs::exists(Partial()));
}

TEST_F(ConvertTest, RefusesAPartialConversionWithOtherSettingsByName) {
  ASSERT_FALSE(RunAndStopAt(CallOf("trunk recorded")).ok());
  ConvertOptions options = Options();
  options.experts = ExpertCodec::kF32;
  options.trunk = TrunkType::kQ4;
  options.seed = 7;
  EXPECT_THAT(Run(options),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("out.partial"), HasSubstr("--experts tcq3 (now f32)"),
                             HasSubstr("--trunk q8 (now q4)"), HasSubstr("--seed 0 (now 7)"))));
}

TEST_F(ConvertTest, RefusesAPartialConversionOfAnotherCheckpoint) {
  ASSERT_FALSE(RunAndStopAt(CallOf("trunk recorded")).ok());
  SmallCheckpoint other;
  other.tie_word_embeddings = true;
  other.WriteTo(dir_ / "other");
  EXPECT_THAT(Convert(dir_ / "other", Target(), Options(), nullptr, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another checkpoint")));
}

TEST_F(ConvertTest, RefusesAPartialConversionOfAnotherVersion) {
  ASSERT_FALSE(RunAndStopAt(CallOf("trunk recorded")).ok());
  const std::string path = Partial() + "/convert.ledger";
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string ledger, ReadTextFile(path, 1 << 30));
  ledger.replace(ledger.find("\"shoal "), 7, "\"older ");
  SHOAL_ASSERT_OK(WriteFileAtomically(path, ledger));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("(older ")));
}

TEST_F(ConvertTest, GoesOnWithTheTrunkTypeOfAPartialConversionWhenNoneIsAsked) {
  ConvertOptions options = Options();
  options.trunk = TrunkType::kQ4;
  std::stop_source stop;
  ASSERT_FALSE(Convert(
                   Source(), Target(), options,
                   [&](const ConvertProgress& progress) {
                     if (progress.step == "trunk recorded") {
                       stop.request_stop();
                     }
                   },
                   stop.get_token())
                   .ok());
  options.trunk.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport report, Run(options));
  EXPECT_EQ(report.trunk, TrunkType::kQ4);
}

TEST_F(ConvertTest, RefusesAPartialDirectoryThatHoldsSomethingElse) {
  fs::create_directory(Partial());
  SHOAL_ASSERT_OK(WriteFileAtomically(Partial() + "/notes.txt", "mine"));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("notes.txt")));
  EXPECT_EQ(ReadTree(Partial()).at("notes.txt"), "mine");
}

TEST_F(ConvertTest, RefusesToShareThePlaceWithARunningConversion) {
  absl::Status second;
  SHOAL_ASSERT_OK(Convert(Source(), Target(), Options(),
                          [&](const ConvertProgress& progress) {
                            if (progress.step == "trunk recorded") {
                              second = Run().status();
                            }
                          },
                          {}));
  EXPECT_THAT(second, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("locked")));
}

// --- bad sources

class ConvertBadSourceTest : public ConvertTest {
 protected:
  absl::StatusOr<ConvertReport> RunMutated(
      const std::function<void(TensorSpec&, std::vector<float>&)>& mutate) const {
    SmallCheckpoint checkpoint;
    checkpoint.mutate = mutate;
    checkpoint.WriteTo(dir_ / "bad");
    return Convert(dir_ / "bad", Target(), Options(), nullptr, {});
  }
  void ExpectNothingWritten() const {
    EXPECT_FALSE(fs::exists(Target()));
    EXPECT_FALSE(fs::exists(Partial()));
  }
};

constexpr char kExpertUp[] = "model.layers.2.block_sparse_moe.experts.13.w3.weight";

TEST_F(ConvertBadSourceTest, MissingExpertTensorIsNamedBeforeAnyWork) {
  EXPECT_THAT(RunMutated([](TensorSpec& spec, std::vector<float>&) {
                if (spec.name == kExpertUp) {
                  spec.name.clear();
                }
              }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kExpertUp)));
  ExpectNothingWritten();
}

TEST_F(ConvertBadSourceTest, WrongShapeIsNamedBeforeAnyWork) {
  EXPECT_THAT(RunMutated([](TensorSpec& spec, std::vector<float>&) {
                if (spec.name == kExpertUp) {
                  spec.shape = {36, 20};
                }
              }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(kExpertUp)));
  ExpectNothingWritten();
}

TEST_F(ConvertBadSourceTest, MissingTrunkTensorIsNamedBeforeAnyWork) {
  EXPECT_THAT(RunMutated([](TensorSpec& spec, std::vector<float>&) {
                if (spec.name == "lm_head.weight") {
                  spec.name.clear();
                }
              }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("lm_head.weight")));
  ExpectNothingWritten();
}

TEST_F(ConvertBadSourceTest, BadTokenizerIsRefusedBeforeAnyWork) {
  SmallCheckpoint().WriteTo(dir_ / "bad");
  SHOAL_ASSERT_OK(WriteFileAtomically(dir_ / "bad/tiktoken.model", "IQ== 0\n"));
  EXPECT_THAT(Convert(dir_ / "bad", Target(), Options(), nullptr, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tiktoken.model")));
  ExpectNothingWritten();
}

TEST_F(ConvertBadSourceTest, NanInAnExpertIsNamedAndNoDirectoryAppears) {
  EXPECT_THAT(RunMutated([](TensorSpec& spec, std::vector<float>& values) {
                if (spec.name == kExpertUp) {
                  values[37] = std::nanf("");
                }
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(kExpertUp), HasSubstr("NaN at element 37"),
                             HasSubstr("model.safetensors"))));
  EXPECT_FALSE(fs::exists(Target()));
}

TEST_F(ConvertBadSourceTest, InfinityInTheTrunkIsNamedAndNoDirectoryAppears) {
  EXPECT_THAT(RunMutated([](TensorSpec& spec, std::vector<float>& values) {
                if (spec.name == "model.norm.weight") {
                  values[3] = INFINITY;
                }
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("model.norm.weight"), HasSubstr("infinity at element 3"))));
  EXPECT_FALSE(fs::exists(Target()));
}

TEST_F(ConvertBadSourceTest, GoesOnOnceADamagedTensorWasFetchedAgain) {
  EXPECT_FALSE(RunMutated([](TensorSpec& spec, std::vector<float>& values) {
                 if (spec.name == kExpertUp) {
                   values[0] = std::nanf("");
                 }
               }).ok());
  SmallCheckpoint().WriteTo(dir_ / "bad");
  SHOAL_ASSERT_OK(Convert(dir_ / "bad", Target(), Options(), nullptr, {}));
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

TEST_F(ConvertBadSourceTest, ZeroExpertsConvertWithoutError) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const ConvertReport report, RunMutated([](TensorSpec& spec, std::vector<float>& values) {
        if (spec.name.find("layers.1.block_sparse_moe.experts") != std::string::npos) {
          std::fill(values.begin(), values.end(), 0.0F);
        }
      }));
  EXPECT_EQ(report.layers[0].relative_error, 0);
  EXPECT_GT(report.layers[1].relative_error, 0);
}

TEST_F(ConvertBadSourceTest, WeightsBeyondFloat16ScalesAreRefusedNotStoredAsInfinity) {
  const auto result = RunMutated([](TensorSpec& spec, std::vector<float>& values) {
    if (spec.name == kExpertUp) {
      values[5] = 1e30F;
    }
  });
  EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("layer 2 expert 13"), HasSubstr("--experts f32"))));
}

TEST_F(ConvertBadSourceTest, WeightsWhoseRotationIsBeyondFloatAreRefusedToo) {
  for (const float largest : {3e38F, -3e38F}) {
    const auto result = RunMutated([largest](TensorSpec& spec, std::vector<float>& values) {
      if (spec.name == kExpertUp) {
        std::fill(values.begin(), values.end(), largest);
      }
    });
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("layer 2 expert 13"), HasSubstr("tcq3"))));
  }
}

// --- disk

TEST_F(ConvertTest, FailsOnAnUnwritableParentNamingIt) {
  fs::permissions(dir_.path(), fs::perms(0755));
  fs::create_directory(dir_ / "locked");
  fs::permissions(dir_ / "locked", fs::perms(0555));
  SmallCheckpoint().WriteTo(dir_ / "source");
  const int status = InChild([&] {
    // Permissions do not bind the superuser.
    if (::geteuid() == 0 && ::setuid(65534) != 0) {
      return 2;
    }
    const auto result = Convert(dir_ / "source", dir_ / "locked/out", Options(), nullptr, {});
    return absl::IsPermissionDenied(result.status()) &&
                   std::string(result.status().message()).find("locked/out.partial") !=
                       std::string::npos
               ? 0
               : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(ConvertTest, FailsWhereTheParentDoesNotExist) {
  EXPECT_THAT(Convert(Source(), dir_ / "none/out", Options(), nullptr, {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/out.partial")));
  EXPECT_THAT(Convert(Source(), "", Options(), nullptr, {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"\"")));
}

TEST_F(ConvertTest, FullDiskSaysHowManyBytesAreNeededAndCanBeResumed) {
  // A limit on file sizes stops the largest file as a full disk would, without one.
  const std::string file = "trunk.bin";
  const uint64_t file_bytes = Reference().at(file).size();
  ASSERT_GT(file_bytes, Reference().at(BankFile(1)).size());
  const int status = InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {file_bytes - 1, file_bytes - 1};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto result = Run();
    const std::string message(result.status().message());
    const bool named = message.find("bytes (") != std::string::npos &&
                       message.find("run the same command again") != std::string::npos &&
                       message.find(file) != std::string::npos;
    return absl::IsResourceExhausted(result.status()) && named ? 0 : 1;
  });
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(fs::exists(Target()));
  EXPECT_FALSE(fs::exists(Partial() + "/container/" + file + ".tmp"));
  SHOAL_ASSERT_OK(Run());
  EXPECT_THAT(DifferentFiles(Reference(), ReadTree(Target())), IsEmpty());
}

// --- other shapes of models

TEST_F(ConvertTest, ModelWithTiedEmbeddingsHasNoHead) {
  SmallCheckpoint checkpoint;
  checkpoint.tie_word_embeddings = true;
  checkpoint.WriteTo(dir_ / "tied");
  SHOAL_ASSERT_OK(Convert(dir_ / "tied", Target(), Options(), nullptr, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(Target()));
  EXPECT_EQ(container->manifest().FindTrunk("lm_head.weight"), nullptr);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(Target(), nullptr));
  EXPECT_THAT(problems, IsEmpty());
}

TEST_F(ConvertTest, ModelWithoutExpertsIsATrunkAlone) {
  SmallCheckpoint checkpoint;
  checkpoint.dense_only = true;
  checkpoint.WriteTo(dir_ / "dense");
  SHOAL_ASSERT_OK_AND_ASSIGN(const ConvertReport report,
                             Convert(dir_ / "dense", Target(), Options(), nullptr, {}));
  EXPECT_THAT(report.layers, IsEmpty());
  EXPECT_FALSE(fs::exists(Target() + "/experts"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(Target(), nullptr));
  EXPECT_THAT(problems, IsEmpty());
}

TEST(RecommendedTrunkTest, IsEightBitsWhereTheTrunkIsSmallBesideMemoryElseFour) {
  ModelConfig config;
  config.model_type = "kimi_linear";
  config.hidden_size = 64;
  config.vocab_size = 1000;
  EXPECT_EQ(RecommendedTrunk(config), TrunkType::kQ8);
  config.vocab_size = int64_t{1} << 38;
  EXPECT_EQ(RecommendedTrunk(config), TrunkType::kQ4);
}

}  // namespace
}  // namespace shoal

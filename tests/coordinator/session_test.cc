// Sessions on the bundled model, converted by the tests' fixture: the invariants that no setting
// may change a bit.
#include "coordinator/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/model.h"
#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::ConvertSmall;
using ::shoal::testing::F32Model;
using ::shoal::testing::NewSession;
using ::shoal::testing::OpenModel;
using ::shoal::testing::RvqModel;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// 150 ids spread over the base vocabulary: more than two attention blocks and two chunks of 64.
std::vector<int32_t> Prompt() {
  std::vector<int32_t> ids(150);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 7919 + 13) % 3840);
  }
  return ids;
}

std::string FileBytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Logits of every position followed by the bytes of the saved session: everything a session is.
std::string RunToBytes(Session& session, const std::vector<int32_t>& ids, int64_t chunk_tokens) {
  std::string bytes;
  Session::ExtendOptions options;
  options.chunk_tokens = chunk_tokens;
  options.on_logits = [&](int64_t, std::span<const float> logits) {
    bytes.append(reinterpret_cast<const char*>(logits.data()), logits.size_bytes());
    return absl::OkStatus();
  };
  EXPECT_THAT(session.Extend(ids, options), testing::IsOk());
  TempDir dir;
  EXPECT_THAT(session.Save(dir / "state"), testing::IsOk());
  return bytes + FileBytesOf(dir / "state");
}

std::string RunModel(const std::string& directory, const ModelOptions& options,
                     int64_t chunk_tokens) {
  const auto model = OpenModel(directory, options);
  auto session = model->NewSession();
  EXPECT_THAT(session, testing::IsOk());
  return RunToBytes(**session, Prompt(), chunk_tokens);
}

class SessionTest : public ::testing::TestWithParam<std::string> {};

TEST_P(SessionTest, ChunkSizeDoesNotChangeAnyBit) {
  const std::string whole = RunModel(GetParam(), {}, 0);
  for (const int64_t chunk : {1, 7, 64}) {
    EXPECT_TRUE(whole == RunModel(GetParam(), {}, chunk)) << "chunks of " << chunk;
  }
}

TEST_P(SessionTest, ThreadCountDoesNotChangeAnyBit) {
  const std::string one = RunModel(GetParam(), {.num_threads = 1}, 0);
  for (const int threads : {2, 4}) {
    EXPECT_TRUE(one == RunModel(GetParam(), {.num_threads = threads}, 0)) << threads << " threads";
  }
}

TEST_P(SessionTest, CacheSizeDoesNotChangeAnyBit) {
  const std::string all = RunModel(GetParam(), {}, 16);
  for (const int64_t records : {4, 5, 40, 150}) {
    EXPECT_TRUE(all == RunModel(GetParam(), {.cache_records = records}, 16))
        << records << " records";
  }
}

TEST_P(SessionTest, AnotherSessionOnAnotherThreadDoesNotChangeAnyBit) {
  // Two threads compute, so that the sessions meet in the pool and in the expert cache.
  const auto model =
      OpenModel(GetParam(), {.num_sessions = 2, .num_threads = 2, .cache_records = 8});
  std::vector<int32_t> other = Prompt();
  std::reverse(other.begin(), other.end());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto first, model->NewSession());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto second, model->NewSession());
  const std::string first_alone = RunToBytes(*first, Prompt(), 16);
  const std::string second_alone = RunToBytes(*second, other, 16);
  first->Reset();
  second->Reset();
  std::string second_beside;
  std::thread thread([&] { second_beside = RunToBytes(*second, other, 16); });
  const std::string first_beside = RunToBytes(*first, Prompt(), 16);
  thread.join();
  EXPECT_TRUE(first_beside == first_alone);
  EXPECT_TRUE(second_beside == second_alone);
}

INSTANTIATE_TEST_SUITE_P(Containers, SessionTest, ::testing::Values(RvqModel(), F32Model()),
                         [](const auto& info) {
                           return info.index == 0 ? std::string("Rvq3") : std::string("F32");
                         });

class TrunkTypeTest : public ::testing::TestWithParam<TrunkType> {};

TEST_P(TrunkTypeTest, NeitherChunksNorThreadsChangeAnyBit) {
  TempDir dir;
  const std::string container = ConvertSmall(SmallCheckpoint(), dir, GetParam());
  std::vector<int32_t> ids(70);
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>((i * 101 + 13) % 300);
  }
  const auto run = [&](int threads, int64_t chunk_tokens) {
    const auto model = OpenModel(container, {.context_tokens = 128, .num_threads = threads});
    EXPECT_EQ(model->mode().trunk, TrunkTypeName(GetParam()));
    auto session = model->NewSession();
    EXPECT_THAT(session, testing::IsOk());
    return RunToBytes(**session, ids, chunk_tokens);
  };
  const std::string whole = run(1, 0);
  for (const int64_t chunk : {1, 7, 64}) {
    EXPECT_TRUE(whole == run(2, chunk)) << "chunks of " << chunk;
  }
  EXPECT_TRUE(whole == run(4, 0));
}

INSTANTIATE_TEST_SUITE_P(AllTypes, TrunkTypeTest,
                         ::testing::Values(TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8,
                                           TrunkType::kQ4),
                         [](const auto& info) { return std::string(TrunkTypeName(info.param)); });

TEST(SessionFileTest, ALoadedSessionGoesOnWithTheSameBits) {
  const auto model = OpenModel(RvqModel(), {.num_sessions = 2});
  const std::vector<int32_t> ids = Prompt();
  const std::vector<int32_t> head(ids.begin(), ids.begin() + 70);
  const std::vector<int32_t> tail(ids.begin() + 70, ids.end());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto first, model->NewSession());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto second, model->NewSession());
  SHOAL_ASSERT_OK(first->Extend(head));
  TempDir dir;
  SHOAL_ASSERT_OK(first->Save(dir / "state"));
  SHOAL_ASSERT_OK(second->Extend(tail));  // something else to be replaced
  SHOAL_ASSERT_OK(second->Load(dir / "state"));
  EXPECT_EQ(second->tokens(), head);
  EXPECT_EQ(
      std::memcmp(second->logits().data(), first->logits().data(), first->logits().size_bytes()),
      0);
  EXPECT_TRUE(RunToBytes(*first, tail, 0) == RunToBytes(*second, tail, 3));
}

TEST(SessionFileTest, RefusesAnotherContainerByIdentity) {
  TempDir dir;
  const auto rvq = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto saved, rvq->NewSession());
  SHOAL_ASSERT_OK(saved->Extend(std::vector<int32_t>{1, 2}));
  SHOAL_ASSERT_OK(saved->Save(dir / "state"));
  const auto f32 = OpenModel(F32Model(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, f32->NewSession());
  EXPECT_THAT(session->Load(dir / "state"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(dir / "state"),
                             HasSubstr(rvq->container().manifest().identity.substr(0, 12)),
                             HasSubstr(f32->container().manifest().identity.substr(0, 12)))));
}

TEST(SessionFileTest, RefusesEveryFlippedByteAndEveryTruncation) {
  TempDir dir;
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>{1, 2, 3}));
  SHOAL_ASSERT_OK(session->Save(dir / "state"));
  const std::string good = FileBytesOf(dir / "state");
  const auto write = [&](const std::string& bytes) {
    std::ofstream(dir / "bad", std::ios::binary) << bytes;
  };
  const size_t size = good.size();
  // Every byte of the header, and a sample of the rest.
  std::vector<size_t> positions(96);
  std::iota(positions.begin(), positions.end(), 0);
  positions.insert(positions.end(), {96, 110, size / 2, size - 33, size - 32, size - 1});
  for (const size_t at : positions) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    write(bytes);
    EXPECT_FALSE(session->Load(dir / "bad").ok()) << "byte " << at;
    EXPECT_EQ(session->tokens(), (std::vector<int32_t>{1, 2, 3}));
  }
  for (const size_t keep : {size_t{0}, size_t{50}, size_t{96}, size / 2, size - 1}) {
    write(good.substr(0, keep));
    EXPECT_FALSE(session->Load(dir / "bad").ok()) << "cut to " << keep;
  }
}

TEST(SessionFileTest, RefusesAnIdentityThatIsNotHexadecimalWithoutPrintingIt) {
  TempDir dir;
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Save(dir / "state"));
  std::string bytes = FileBytesOf(dir / "state");
  bytes.replace(32, 4, "\x1b[2J");  // the identity begins there; this clears a terminal
  std::ofstream(dir / "state", std::ios::binary) << bytes;
  EXPECT_THAT(session->Load(dir / "state"),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("hexadecimal"), Not(HasSubstr("\x1b")))));
}

TEST(SessionFileTest, AFailedSaveLeavesNoTemporaryFileAndTheOldOneAsItWas) {
  TempDir dir;
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  std::filesystem::create_directories(dir / "state/full");  // cannot be replaced by a file
  EXPECT_FALSE(session->Save(dir / "state").ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "state.tmp"));

  SHOAL_ASSERT_OK(session->Save(dir / "old"));
  const std::string old = FileBytesOf(dir / "old");
  std::filesystem::create_symlink("/dev/full", dir / "old.tmp");
  EXPECT_THAT(session->Save(dir / "old"),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("old.tmp")));
  EXPECT_FALSE(std::filesystem::is_symlink(dir / "old.tmp"));
  EXPECT_EQ(FileBytesOf(dir / "old"), old);
}

TEST(SessionFileTest, RefusesAnotherVersionByNumber) {
  TempDir dir;
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Save(dir / "state"));
  std::string bytes = FileBytesOf(dir / "state");
  bytes[8] = 9;
  std::ofstream(dir / "state", std::ios::binary) << bytes;
  EXPECT_THAT(session->Load(dir / "state"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 9")));
}

TEST(SessionFileTest, RefusesMoreTokensThanTheContextHolds) {
  TempDir dir;
  {
    const auto model = OpenModel(RvqModel(), {});
    SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
    SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>(20, 5)));
    SHOAL_ASSERT_OK(session->Save(dir / "state"));
  }
  const auto model = OpenModel(RvqModel(), {.context_tokens = 10});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  EXPECT_THAT(session->Load(dir / "state"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("20 tokens"), HasSubstr("--ctx"))));
}

// Asks for a stop as soon as a given layer's output is seen.
class StopAtLayer final : public ForwardObserver {
 public:
  StopAtLayer(std::string name, std::stop_source& source)
      : name_(std::move(name)), source_(source) {}
  void OnHidden(const std::string& name, int64_t, int64_t, std::span<const float>) override {
    if (name == name_) {
      source_.request_stop();
    }
  }
  void OnRouting(int64_t, int64_t, int64_t, std::span<const int32_t>,
                 std::span<const float>) override {}

 private:
  std::string name_;
  std::stop_source& source_;
};

TEST(SessionCancelTest, AChunkStoppedHalfWayLeavesNoTrace) {
  const auto model = OpenModel(RvqModel(), {.num_sessions = 2});
  const std::vector<int32_t> ids = Prompt();
  SHOAL_ASSERT_OK_AND_ASSIGN(auto disturbed, model->NewSession());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto undisturbed, model->NewSession());
  const std::vector<int32_t> head(ids.begin(), ids.begin() + 20);
  const std::vector<int32_t> tail(ids.begin() + 20, ids.end());
  SHOAL_ASSERT_OK(disturbed->Extend(head));
  SHOAL_ASSERT_OK(undisturbed->Extend(head));

  std::stop_source source;
  StopAtLayer observer("hidden.4", source);
  Session::ExtendOptions options;
  options.observer = &observer;
  options.stop = source.get_token();
  EXPECT_THAT(disturbed->Extend(std::vector<int32_t>(9, 77), options),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_EQ(disturbed->tokens(), head);
  EXPECT_TRUE(RunToBytes(*disturbed, tail, 0) == RunToBytes(*undisturbed, tail, 0));
}

TEST(SessionCancelTest, FinishedChunksAreKept) {
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  std::stop_source source;
  Session::ExtendOptions options;
  options.chunk_tokens = 10;
  options.stop = source.get_token();
  options.on_progress = [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 150);
    if (done == 30) {
      source.request_stop();
    }
  };
  EXPECT_THAT(session->Extend(Prompt(), options),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_EQ(session->position(), 30);
}

TEST(SessionInputTest, RefusesIdsOutsideTheVocabularyWithTheRange) {
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  for (const int32_t id : {-1, 4096, 2000000000}) {
    EXPECT_THAT(session->Extend(std::vector<int32_t>{1, id}),
                StatusIs(absl::StatusCode::kOutOfRange,
                         AllOf(HasSubstr(std::to_string(id)), HasSubstr("4095"))));
  }
  EXPECT_EQ(session->position(), 0);
}

TEST(SessionInputTest, RefusesAPromptLongerThanTheContext) {
  const auto model = OpenModel(RvqModel(), {.context_tokens = 16});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Extend(std::vector<int32_t>(10, 3)));
  EXPECT_THAT(session->Extend(std::vector<int32_t>(7, 3)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("7 tokens"), HasSubstr("room for 6"))));
  EXPECT_EQ(session->position(), 10);
  SHOAL_EXPECT_OK(session->Extend(std::vector<int32_t>(6, 3)));
}

TEST(SessionResetTest, StartsFromNothingAgain) {
  const auto model = OpenModel(RvqModel(), {.num_sessions = 2});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto used, model->NewSession());
  SHOAL_ASSERT_OK_AND_ASSIGN(auto fresh, model->NewSession());
  SHOAL_ASSERT_OK(used->Extend(std::vector<int32_t>{9, 8, 7, 6, 5}));
  used->Reset();
  EXPECT_TRUE(used->logits().empty());
  EXPECT_TRUE(RunToBytes(*used, Prompt(), 0) == RunToBytes(*fresh, Prompt(), 0));
}

TEST(ModelTest, TwoModelsInOneProcessDoNotDisturbEachOther) {
  const std::vector<int32_t> prompt = Prompt();
  std::vector<std::vector<float>> alone;
  for (const std::string& directory : {RvqModel(), F32Model()}) {
    const auto model = OpenModel(directory);
    const auto session = NewSession(*model);
    SHOAL_ASSERT_OK(session->Extend(prompt));
    alone.emplace_back(session->logits().begin(), session->logits().end());
  }
  EXPECT_NE(alone[0], alone[1]);

  const auto rvq = OpenModel(RvqModel());
  const auto f32 = OpenModel(F32Model());
  const auto first = NewSession(*rvq);
  const auto second = NewSession(*f32);
  for (const int32_t id : prompt) {
    SHOAL_ASSERT_OK(first->Extend({&id, 1}));
    SHOAL_ASSERT_OK(second->Extend({&id, 1}));
  }
  EXPECT_TRUE(std::ranges::equal(first->logits(), alone[0]));
  EXPECT_TRUE(std::ranges::equal(second->logits(), alone[1]));
}

TEST(ModelTest, OpensNoMoreSessionsThanPlanned) {
  const auto model = OpenModel(RvqModel(), {.num_sessions = 1});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  EXPECT_THAT(model->NewSession(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("num_sessions")));
  session.reset();
  SHOAL_EXPECT_OK(model->NewSession());
}

TEST(ModelTest, CountsOneReadForEveryMissAndTheBytesOfWholeRecords) {
  const auto model = OpenModel(RvqModel(), {});
  SHOAL_ASSERT_OK_AND_ASSIGN(auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Extend(Prompt()));
  int64_t misses = 0;
  for (const ExpertLayerStats& layer : model->ExpertStats()) {
    EXPECT_EQ(layer.expert_reads, layer.expert_misses) << "layer " << layer.layer;
    EXPECT_EQ(layer.expert_bytes,
              static_cast<uint64_t>(layer.expert_reads) * model->mode().plan.record_bytes);
    misses += layer.expert_misses;
  }
  EXPECT_GT(misses, 0);
  EXPECT_LE(misses, 7 * 32);  // the cache holds all experts: each is missed once at most
}

TEST(ModelTest, RefusesABudgetBelowTheFloorWithTheTable) {
  EXPECT_THAT(Model::Open(RvqModel(), {.budget_bytes = uint64_t{1} << 20}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("trunk"), HasSubstr("kv_cache"), HasSubstr("--budget"))));
}

}  // namespace
}  // namespace shoal

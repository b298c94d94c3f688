#include "coordinator/synth/synthesize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "common/container/container.h"
#include "common/container/verify.h"
#include "coordinator/model.h"
#include "coordinator/session.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ::shoal::testing::DifferentFiles;
using ::shoal::testing::ReadTree;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;

// A few hundred kilobytes.
SynthOptions Small(uint64_t seed = 1, int num_jobs = 2) {
  SynthOptions options;
  options.shape = {.like = "tiny", .num_layers = 3, .num_experts = 5, .vocab_size = 600};
  options.seed = seed;
  options.num_jobs = num_jobs;
  return options;
}

TEST(SynthesizeTest, EveryByteVerifies) {
  const TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(const SynthReport report,
                             Synthesize(dir / "out", Small(), nullptr, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(dir / "out", nullptr));
  EXPECT_THAT(problems, IsEmpty());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir / "out"));
  EXPECT_EQ(container->manifest().identity, report.identity);
  EXPECT_EQ(container->manifest().config.moe_layers(), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(container->manifest().config.moe.num_experts, 5);
}

// Many layers: what grew from layer to layer would leave the fixed point range, and an expert whose
// terms do is an error.
class SynthesizeCodecTest : public ::testing::TestWithParam<ExpertCodec> {};
INSTANTIATE_TEST_SUITE_P(Codecs, SynthesizeCodecTest,
                         ::testing::Values(ExpertCodec::kTcq3, ExpertCodec::kRvq3),
                         [](const auto& info) { return std::string(ExpertCodecName(info.param)); });

TEST_P(SynthesizeCodecTest, ADeepModelRunsAndItsLogitsKeepTheirSize) {
  const TempDir dir;
  SynthOptions options = Small();
  options.experts = GetParam();
  options.shape.num_layers = 40;
  SHOAL_ASSERT_OK(Synthesize(dir / "out", options, nullptr, {}).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto model, Model::Open(dir / "out", {.context_tokens = 64}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto session, model->NewSession());
  SHOAL_ASSERT_OK(session->Extend(model->tokenizer().EncodeText("Once upon a time")));
  double squares = 0;
  for (const float logit : session->logits()) {
    ASSERT_TRUE(std::isfinite(logit));
    squares += double{logit} * double{logit};
  }
  // The head's rows are drawn so that its products with a normalized row have the deviation 1; the
  // mean of 600 of their squares is then off by 6 % as a rule.
  EXPECT_NEAR(squares / static_cast<double>(session->logits().size()), 1, 0.3);
}

TEST(SynthesizeTest, TheSameSeedGivesTheSameBytesOnAnyNumberOfThreads) {
  const TempDir dir;
  SHOAL_ASSERT_OK(Synthesize(dir / "a", Small(7, 1), nullptr, {}).status());
  SHOAL_ASSERT_OK(Synthesize(dir / "b", Small(7, 3), nullptr, {}).status());
  EXPECT_THAT(DifferentFiles(ReadTree(dir / "a"), ReadTree(dir / "b")), IsEmpty());
}

TEST_P(SynthesizeCodecTest, AnotherSeedGivesOtherWeights) {
  const TempDir dir;
  SynthOptions options = Small(7);
  options.experts = GetParam();
  SHOAL_ASSERT_OK_AND_ASSIGN(const SynthReport a, Synthesize(dir / "a", options, nullptr, {}));
  options.seed = 8;
  SHOAL_ASSERT_OK_AND_ASSIGN(const SynthReport b, Synthesize(dir / "b", options, nullptr, {}));
  EXPECT_NE(a.identity, b.identity);
  const std::vector<std::string> different =
      DifferentFiles(ReadTree(dir / "a"), ReadTree(dir / "b"));
  EXPECT_THAT(different, IsSupersetOf({"trunk.bin", "experts/layer-00001.bank",
                                       "experts/layer-00002.bank", "manifest.json"}));
  EXPECT_EQ(std::count(different.begin(), different.end(), "codebooks.bin"),
            GetParam() == ExpertCodec::kRvq3 ? 1 : 0);
}

TEST(SynthesizeTest, NoTwoExpertsAreTheSame) {
  const TempDir dir;
  SHOAL_ASSERT_OK(Synthesize(dir / "out", Small(), nullptr, {}).status());
  // Digests of all units of a layer, 32 bytes each.
  const std::map<std::string, std::string> files = ReadTree(dir / "out");
  std::map<std::string, int> digests;
  for (const char* name : {"experts/layer-00001.tree", "experts/layer-00002.tree"}) {
    const std::string& tree = files.at(name);
    ASSERT_EQ(tree.size(), 5 * 8 * 32);
    for (size_t at = 0; at < tree.size(); at += 32) {
      ++digests[tree.substr(at, 32)];
    }
  }
  EXPECT_THAT(digests, Each(::testing::Pair(::testing::_, 1)));
}

// The published numbers: parameters of the whole model; bytes of docs/format.md, section 10.
TEST(SynthesizeTest, KimiLinear48bHasThePublishedSizes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SyntheticModel model,
                             MakeSyntheticModel({.like = "kimi-linear-48b"}));
  uint64_t parameters = uint64_t{26} * 256 * 3 * 2304 * 1024;
  for (const TrunkTensor& tensor : TrunkTensors(model.config)) {
    parameters += NumElements(tensor.shape);
  }
  EXPECT_EQ(parameters, 49'122'681'728U);
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout layout,
                             UnitLayout::Make(ExpertCodec::kRvq3, model.config.hidden_size,
                                              model.config.moe.moe_intermediate_size));
  EXPECT_EQ(layout.unit_bytes, 336'960U);
  EXPECT_EQ(layout.record_bytes, 2'699'264U);
  std::vector<int64_t> latent;
  for (int64_t layer = 0; layer < model.config.num_layers(); ++layer) {
    if (model.config.layers[static_cast<size_t>(layer)].attention == AttentionKind::kMla) {
      latent.push_back(layer);
    }
  }
  EXPECT_EQ(latent, (std::vector<int64_t>{3, 7, 11, 15, 19, 23, 26}));
}

TEST(SynthesizeTest, KimiK3HasTheExpertsOfKimiK3) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const SyntheticModel model,
      MakeSyntheticModel({.like = "kimi-k3", .num_layers = 2, .vocab_size = 512}));
  EXPECT_EQ(model.config.hidden_size, 3584);
  EXPECT_EQ(model.config.moe.moe_intermediate_size, 3072);
  EXPECT_EQ(model.config.moe.num_experts, 896);
  EXPECT_EQ(model.config.moe.num_experts_per_token, 16);
  EXPECT_EQ(model.config.vocab_size, 512);
  EXPECT_EQ(model.config.num_layers(), 2);
  EXPECT_EQ(model.config.num_moe_layers(), 1);
}

TEST(SynthesizeTest, RefusesWhatIsOutsideItsBounds) {
  const TempDir dir;
  const auto refusal = [&dir](const SyntheticShape& shape) {
    SynthOptions options;
    options.shape = shape;
    return Synthesize(dir / "out", options, nullptr, {}).status();
  };
  const auto refused = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
  };
  EXPECT_THAT(refusal({.like = "kimi"}),
              refused("no family \"kimi\" to make a model like; there are kimi-k3, "
                      "kimi-linear-48b, tiny"));
  EXPECT_THAT(refusal({.like = "tiny", .num_layers = 1}),
              refused("1 layers; 2 to 4096 are possible"));
  EXPECT_THAT(refusal({.like = "tiny", .num_experts = 3}),
              refused("3 experts; 4 to 32 are possible"));
  EXPECT_THAT(refusal({.like = "tiny", .num_experts = 33}), refused("33 experts"));
  EXPECT_THAT(refusal({.like = "tiny", .vocab_size = 511}),
              refused("511 tokens in the vocabulary; 512 to 1048576 are possible"));
  SynthOptions options = Small();
  options.seed = uint64_t{1} << 63;
  EXPECT_THAT(Synthesize(dir / "out", options, nullptr, {}),
              refused("seed 9223372036854775808 is beyond 2^63 - 1"));
  EXPECT_THAT(Synthesize("/", Small(), nullptr, {}), refused("cannot be the directory"));
  EXPECT_THAT(ReadTree(dir.path()), IsEmpty());
}

TEST(SynthesizeTest, WhatIsThereAlreadyIsKeptAndAnotherIsRefused) {
  const TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(const SynthReport first,
                             Synthesize(dir / "out", Small(), nullptr, {}));
  EXPECT_FALSE(first.already_there);
  SHOAL_ASSERT_OK_AND_ASSIGN(const SynthReport again,
                             Synthesize(dir / "out/", Small(), nullptr, {}));
  EXPECT_TRUE(again.already_there);
  EXPECT_EQ(again.identity, first.identity);
  EXPECT_EQ(again.container_bytes, first.container_bytes);
  EXPECT_THAT(Synthesize(dir / "out", Small(2), nullptr, {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("holds another container")));
  fs::remove(dir / "out/config.json");
  EXPECT_THAT(Synthesize(dir / "out", Small(), nullptr, {}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("not a whole container")));
}

TEST(SynthesizeTest, ADiskThatIsTooSmallIsNoticedBeforeAnythingIsWritten) {
  const TempDir dir;
  // The records alone: 2 layers of 5 experts of 20,480 bytes.
  SynthOptions options = Small();
  options.free_disk_bytes = [](const std::string&) { return absl::StatusOr<uint64_t>(204'800); };
  EXPECT_THAT(Synthesize(dir / "out", options, nullptr, {}),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("the container needs"), HasSubstr("has 204800 bytes"))));
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(SynthesizeTest, AStopAtAnyStepLeavesNothingBehind) {
  const TempDir dir;
  int steps = 0;
  SHOAL_ASSERT_OK(
      Synthesize(dir / "whole", Small(), [&steps](const SynthProgress&) { ++steps; }, {}).status());
  ASSERT_GT(steps, 10);
  for (int stop_at = 1; stop_at <= steps; stop_at += 3) {
    std::stop_source source;
    int step = 0;
    const auto stop = [&](const SynthProgress&) {
      if (++step == stop_at) {
        source.request_stop();
      }
    };
    EXPECT_THAT(Synthesize(dir / "out", Small(), stop, source.get_token()),
                StatusIs(absl::StatusCode::kCancelled, HasSubstr("nothing was kept")));
    EXPECT_FALSE(fs::exists(dir / "out"));
    EXPECT_FALSE(fs::exists(dir / "out.partial"));
  }
}

TEST(SynthesizeTest, WhatAKilledRunLeftIsReplaced) {
  const TempDir dir;
  fs::create_directories(dir / "out.partial/container/experts");
  std::ofstream(dir / "out.partial/synth.begun").flush();
  std::ofstream(dir / "out.partial/container/experts/layer-00009.bank") << "half";
  SHOAL_ASSERT_OK(Synthesize(dir / "out", Small(), nullptr, {}).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(dir / "out", nullptr));
  EXPECT_THAT(problems, IsEmpty());
  EXPECT_FALSE(fs::exists(dir / "out.partial"));
}

TEST(SynthesizeTest, LeavesThePartialDirectoryOfAConversionAlone) {
  const TempDir dir;
  fs::create_directories(dir / "out.partial");
  std::ofstream(dir / "out.partial/convert.ledger") << "{}\n";
  EXPECT_THAT(Synthesize(dir / "out", Small(), nullptr, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("convert.ledger")));
  EXPECT_TRUE(fs::exists(dir / "out.partial/convert.ledger"));
}

}  // namespace
}  // namespace shoal

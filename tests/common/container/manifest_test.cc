#include "common/container/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/sha256.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string VariantConfig(const std::string& name) {
  std::ifstream in(SHOAL_SOURCE_DIR "/tests/data/random_variants.json");
  return Json::parse(in, nullptr, /*allow_exceptions=*/false).at(name).at("config").dump();
}

// A digest that says which one it is.
std::string Digest(const std::string& of) { return ToHex(Sha256::Of(of)); }

// What a converter would write for a config, with invented digests. The base variant has 16 experts
// of 64 x 32 in layers 1 to 3: 4 units of 8. For rvq3 a unit is 192 bytes of header and scales
// (32 + 2 * (8 + 8 + 64)), 384 of gate and up (8 positions of 6 planes of 8) and 192 of down
// (3 planes of 64): 768, a record one page.
Manifest MakeManifest(const std::string& config_json, ExpertCodec experts, TrunkType trunk) {
  constexpr uint64_t kRecordBytes = 4096;
  constexpr uint64_t kF32RecordBytes = 28672;  // 4 * (64 + 3 * 8 * 64 * 4) = 24832 in whole pages
  const bool rvq = experts == ExpertCodec::kRvq3;
  Manifest manifest;
  manifest.created_by = "manifest_test";
  manifest.settings = {.experts = experts, .trunk = trunk, .seed = 42};
  manifest.config = ParseModelConfig(config_json, "config.json").value();
  manifest.source_fingerprint = "made up";
  manifest.source_tensors_sha256 = Digest("source");
  uint64_t offset = 0;
  uint32_t crc = 0xFEDCBA98;
  for (const TrunkTensor& tensor : TrunkTensors(manifest.config)) {
    TrunkEntry entry = LayOutTrunkEntry(tensor.name, StoredTrunkType(tensor.role, trunk, true),
                                        tensor.shape, offset);
    entry.crc32c = crc++;
    offset = entry.offset_bytes + entry.size_bytes;
    manifest.trunk.push_back(entry);
  }
  manifest.files = {{"config.json", config_json.size(), Digest(config_json)},
                    {"source_tensors.txt", 1234, Digest("source")},
                    {"tiktoken.model", 99, Digest("tokens")},
                    {"trunk.bin", offset, Digest("trunk")}};
  for (const int64_t layer : manifest.config.moe_layers()) {
    const std::string stem = absl::StrCat("experts/layer-0000", layer);
    manifest.files.push_back(
        {stem + ".bank", 16 * (rvq ? kRecordBytes : kF32RecordBytes), Digest(stem)});
    manifest.files.push_back({stem + ".tree", 16 * 4 * 32, Digest(stem + "tree")});
    manifest.banks.push_back({layer, Digest(stem + "root"), 0.1625});
  }
  if (rvq && !manifest.banks.empty()) {
    manifest.codebooks_sha256 = Digest("books");
    // Three books of 4 stages of 64 entries of 8 bytes a layer.
    manifest.files.push_back({"codebooks.bin", manifest.banks.size() * 3 * 2048, Digest("books")});
  }
  manifest.identity = ComputeIdentity(config_json, manifest);
  return manifest;
}

class ManifestTest : public ::testing::Test {
 protected:
  absl::StatusOr<Manifest> Parse(const std::string& text) const {
    return ParseManifest(text, config_, "c/manifest.json");
  }
  absl::StatusOr<Manifest> Parse(const Json& json) const { return Parse(json.dump()); }
  // The manifest with the value at a JSON pointer replaced, or taken away where `value` is
  // discarded.
  Json With(const std::string& pointer, const Json& value) const {
    Json json = Json::parse(text_);
    const Json::json_pointer at(pointer);
    if (value.is_discarded()) {
      json.at(at.parent_pointer()).erase(at.back());
    } else {
      json.at(at) = value;
    }
    return json;
  }
  // Index of a file or tensor in its list.
  size_t FileIndex(const std::string& path) const {
    for (size_t i = 0; i < manifest_.files.size(); ++i) {
      if (manifest_.files[i].path == path) {
        return i;
      }
    }
    ADD_FAILURE() << path;
    return 0;
  }

  const std::string config_ = VariantConfig("base");
  const Manifest manifest_ = MakeManifest(config_, ExpertCodec::kRvq3, TrunkType::kQ8);
  const std::string text_ = SerializeManifest(manifest_);
};

TEST_F(ManifestTest, ReadsBackEverythingItWrote) {
  for (const ExpertCodec experts : {ExpertCodec::kRvq3, ExpertCodec::kF32}) {
    for (const TrunkType trunk :
         {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8, TrunkType::kQ4}) {
      const Manifest written = MakeManifest(config_, experts, trunk);
      SHOAL_ASSERT_OK_AND_ASSIGN(const Manifest read, Parse(SerializeManifest(written)));
      EXPECT_EQ(read.version, 1);
      EXPECT_EQ(read.identity, written.identity);
      EXPECT_EQ(read.created_by, "manifest_test");
      EXPECT_EQ(read.source_fingerprint, "made up");
      EXPECT_EQ(read.source_tensors_sha256, written.source_tensors_sha256);
      EXPECT_EQ(read.codebooks_sha256, written.codebooks_sha256);
      EXPECT_EQ(read.settings.experts, experts);
      EXPECT_EQ(read.settings.trunk, trunk);
      EXPECT_EQ(read.settings.seed, 42U);
      EXPECT_EQ(read.config.vocab_size, 512);
      EXPECT_EQ(read.unit_layout.codec, experts);
      EXPECT_EQ(read.unit_layout.num_units, 4);
      ASSERT_EQ(read.files.size(), written.files.size());
      for (size_t i = 0; i < read.files.size(); ++i) {
        EXPECT_EQ(read.files[i].path, written.files[i].path);
        EXPECT_EQ(read.files[i].size_bytes, written.files[i].size_bytes);
        EXPECT_EQ(read.files[i].sha256, written.files[i].sha256);
      }
      ASSERT_EQ(read.trunk.size(), written.trunk.size());
      for (size_t i = 0; i < read.trunk.size(); ++i) {
        EXPECT_EQ(read.trunk[i].name, written.trunk[i].name);
        EXPECT_EQ(read.trunk[i].type, written.trunk[i].type);
        EXPECT_EQ(read.trunk[i].shape, written.trunk[i].shape);
        EXPECT_EQ(read.trunk[i].offset_bytes, written.trunk[i].offset_bytes);
        EXPECT_EQ(read.trunk[i].scales_offset_bytes, written.trunk[i].scales_offset_bytes);
        EXPECT_EQ(read.trunk[i].size_bytes, written.trunk[i].size_bytes);
        EXPECT_EQ(read.trunk[i].crc32c, written.trunk[i].crc32c);
      }
      ASSERT_EQ(read.banks.size(), 3U);
      for (size_t i = 0; i < read.banks.size(); ++i) {
        EXPECT_EQ(read.banks[i].layer, static_cast<int64_t>(i) + 1);
        EXPECT_EQ(read.banks[i].tree_root, written.banks[i].tree_root);
        EXPECT_EQ(read.banks[i].relative_error, 0.1625);
      }
      EXPECT_EQ(SerializeManifest(read), SerializeManifest(written));
    }
  }
}

TEST_F(ManifestTest, EveryVariantOfTheModelHasAManifestThatReadsBack) {
  for (const char* name : {"tied", "q_lora", "conv3", "no_shared", "every_other_moe", "dense_none",
                           "all_kda", "all_mla"}) {
    const std::string config = VariantConfig(name);
    const Manifest written = MakeManifest(config, ExpertCodec::kRvq3, TrunkType::kQ4);
    SHOAL_EXPECT_OK(ParseManifest(SerializeManifest(written), config, name)) << name;
  }
}

TEST_F(ManifestTest, AModelWithoutExpertsNeedsNoCodebooks) {
  const std::string config = VariantConfig("dense_only");
  const Manifest written = MakeManifest(config, ExpertCodec::kRvq3, TrunkType::kBF16);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Manifest read,
                             ParseManifest(SerializeManifest(written), config, "m"));
  EXPECT_TRUE(read.banks.empty());
  EXPECT_EQ(read.codebooks_sha256, "");
}

TEST_F(ManifestTest, FindsFilesAndTensorsByName) {
  EXPECT_EQ(manifest_.FindFile("trunk.bin"), &manifest_.files[3]);
  EXPECT_EQ(manifest_.FindFile("trunk.bi"), nullptr);
  EXPECT_EQ(manifest_.FindTrunk("model.embed_tokens.weight"), &manifest_.trunk[0]);
  EXPECT_EQ(manifest_.FindTrunk(""), nullptr);
}

TEST_F(ManifestTest, RefusesAVersionFromTheFutureByName) {
  EXPECT_THAT(Parse(With("/version", 2)),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("c/manifest.json"), HasSubstr("version 2"),
                             HasSubstr("reads version 1"))));
  // Whatever else such a manifest says, its version is what matters.
  EXPECT_THAT(Parse(std::string(R"({"format": "shoal-container", "version": 7})")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("version 7")));
}

TEST_F(ManifestTest, RefusesWhatIsNoManifest) {
  EXPECT_THAT(Parse(std::string("not json")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("c/manifest.json")));
  EXPECT_THAT(Parse(std::string("{}")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("format is missing")));
  EXPECT_THAT(Parse(With("/format", "gguf")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("format")));
}

TEST_F(ManifestTest, RefusesUnknownCodecsAndTrunkTypesByName) {
  EXPECT_THAT(Parse(With("/settings/experts", "tcq9")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"tcq9\"")));
  EXPECT_THAT(Parse(With("/settings/trunk", "q2")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"q2\"")));
  EXPECT_THAT(Parse(With("/trunk/0/type", "nf4")),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"nf4\"")));
}

TEST_F(ManifestTest, RefusesAKeyThatAppearsTwice) {
  for (const char* key : {"version", "identity", "size_bytes", "tree_root", "seed"}) {
    const std::string member = absl::StrCat("\"", key, "\":");
    std::string text = text_;
    text.insert(text.find(member), member + "1,");
    EXPECT_THAT(Parse(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                      AllOf(HasSubstr(key), HasSubstr("twice"))));
  }
}

TEST_F(ManifestTest, NamesAFieldThatIsMissingOrOfAnotherKind) {
  for (const char* pointer : {"/version",
                              "/identity",
                              "/created_by",
                              "/source_fingerprint",
                              "/source_tensors_sha256",
                              "/settings",
                              "/settings/experts",
                              "/settings/trunk",
                              "/settings/seed",
                              "/files",
                              "/trunk",
                              "/banks",
                              "/files/0/path",
                              "/files/0/size_bytes",
                              "/files/0/sha256",
                              "/trunk/3/name",
                              "/trunk/3/type",
                              "/trunk/3/shape",
                              "/trunk/3/offset_bytes",
                              "/trunk/3/size_bytes",
                              "/trunk/3/crc32c",
                              "/banks/1/layer",
                              "/banks/1/tree_root",
                              "/banks/1/relative_error"}) {
    const std::string field = std::string(pointer).substr(std::string(pointer).rfind('/') + 1);
    EXPECT_THAT(Parse(With(pointer, Json(Json::value_t::discarded))),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)))
        << pointer;
    for (const Json& other : {Json(true), Json(1.5), Json("x"), Json::array({1}), Json(-1)}) {
      if (field == "created_by" || field == "source_fingerprint" || field == "relative_error") {
        continue;  // some of these are values it may have
      }
      EXPECT_FALSE(Parse(With(pointer, other)).ok()) << pointer << " " << other.dump();
    }
  }
  for (const char* pointer : {"/files/0", "/trunk/0", "/banks/0"}) {
    EXPECT_THAT(Parse(With(pointer, 7)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is missing")))
        << pointer;
  }
}

TEST_F(ManifestTest, RefusesNumbersThatDoNotFit) {
  for (const char* pointer : {"/settings/seed", "/files/0/size_bytes", "/trunk/0/size_bytes",
                              "/trunk/0/offset_bytes", "/version"}) {
    const std::string field = std::string(pointer).substr(std::string(pointer).rfind('/') + 1);
    EXPECT_THAT(Parse(With(pointer, ~uint64_t{0})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
    EXPECT_THAT(Parse(With(pointer, 1e300)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)));
  }
  EXPECT_THAT(Parse(With("/banks/0/relative_error", -0.5)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("relative_error")));
}

TEST_F(ManifestTest, RefusesDigestsThatAreNone) {
  for (const char* pointer : {"/identity", "/source_tensors_sha256", "/codebooks_sha256",
                              "/files/2/sha256", "/banks/2/tree_root"}) {
    const std::string field = std::string(pointer).substr(std::string(pointer).rfind('/') + 1);
    for (const std::string& bad :
         {std::string("00"), std::string(64, 'g'), std::string(64, 'A'), std::string(65, '0')}) {
      EXPECT_THAT(Parse(With(pointer, bad)),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)))
          << pointer << " " << bad;
    }
  }
  for (const char* bad : {"", "123", "123456789", "xxxxxxxx", "+1234567"}) {
    EXPECT_THAT(Parse(With("/trunk/5/crc32c", bad)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("crc32c")))
        << bad;
  }
}

TEST_F(ManifestTest, SizesMustBeThoseOfTheConfig) {
  for (const char* path :
       {"trunk.bin", "experts/layer-00002.bank", "experts/layer-00003.tree", "codebooks.bin"}) {
    const size_t index = FileIndex(path);
    const std::string pointer = absl::StrCat("/files/", index, "/size_bytes");
    for (const int64_t change : {-1, 1}) {
      const int64_t size = static_cast<int64_t>(manifest_.files[index].size_bytes) + change;
      EXPECT_THAT(Parse(With(pointer, size)),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr(path), HasSubstr(absl::StrCat(size, " bytes")))))
          << path;
    }
  }
}

TEST_F(ManifestTest, EveryFileTheModelNeedsMustBeNamed) {
  for (const char* path : {"trunk.bin", "experts/layer-00001.bank", "experts/layer-00001.tree",
                           "codebooks.bin", "config.json", "source_tensors.txt"}) {
    Json json = Json::parse(text_);
    json["files"].erase(FileIndex(path));
    EXPECT_THAT(Parse(json), StatusIs(absl::StatusCode::kDataLoss,
                                      AllOf(HasSubstr("does not name"), HasSubstr(path))));
  }
}

TEST_F(ManifestTest, TrunkEntriesMustBeThoseOfTheConfig) {
  const std::string name = manifest_.trunk[4].name;
  const auto expect_refused = [&](const char* field, const Json& value, absl::StatusCode code) {
    EXPECT_THAT(Parse(With(absl::StrCat("/trunk/4/", field), value)),
                StatusIs(code, AllOf(HasSubstr(absl::StrCat("trunk: ", name)))))
        << field;
  };
  expect_refused("name", "model.norm.weight", absl::StatusCode::kDataLoss);
  expect_refused("type", "q4", absl::StatusCode::kDataLoss);
  expect_refused("offset_bytes", manifest_.trunk[4].offset_bytes + 64, absl::StatusCode::kDataLoss);
  expect_refused("offset_bytes", 0, absl::StatusCode::kDataLoss);
  expect_refused("size_bytes", manifest_.trunk[4].size_bytes + 64, absl::StatusCode::kDataLoss);
  expect_refused("size_bytes", manifest_.trunk[4].size_bytes - 1, absl::StatusCode::kDataLoss);
  Json shape = manifest_.trunk[4].shape;
  shape.push_back(1);
  expect_refused("shape", shape, absl::StatusCode::kInvalidArgument);
}

TEST_F(ManifestTest, ListsMustHaveAnEntryForEachTensorAndEachLayer) {
  for (const char* list : {"trunk", "banks"}) {
    Json longer = Json::parse(text_);
    longer[list].push_back(longer[list].back());
    EXPECT_THAT(Parse(longer), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(list)));
    Json shorter = Json::parse(text_);
    shorter[list].erase(0);
    EXPECT_THAT(Parse(shorter), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(list)));
  }
  EXPECT_THAT(Parse(With("/banks/1/layer", 3)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer")));
}

TEST_F(ManifestTest, RefusesPathsThatLeaveTheDirectory) {
  for (const std::string& path :
       {std::string("../trunk.bin"), std::string("/etc/passwd"), std::string("experts/../../x"),
        std::string(".."), std::string("a//b"), std::string("a/"), std::string(""),
        std::string("a\0b", 3), std::string("a\\b"), std::string("a b"), std::string("~"),
        std::string(256, 'a'), std::string("\xC3\xA9"), std::string("."), std::string("./x"),
        std::string("a/./x"), std::string("experts/."), std::string("/")}) {
    EXPECT_THAT(Parse(With("/files/2/path", path)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("path")))
        << path;
  }
  // A name only longer than usual is fine.
  SHOAL_EXPECT_OK(Parse(With("/files/2/path", std::string(255, 'a'))));
}

TEST_F(ManifestTest, LimitsNumberAndSizeOfFilesThatDoNotFollowFromTheConfig) {
  Json json = Json::parse(text_);
  const Json extra = json["files"][2];
  // Trunk, codebooks and so on are among the 64; 3 layers have 2 each.
  for (int i = 0; json["files"].size() < 64 + 6; ++i) {
    json["files"].push_back(extra);
    json["files"].back()["path"] = absl::StrCat("more-", i);
  }
  SHOAL_EXPECT_OK(Parse(json));
  json["files"].push_back(extra);
  EXPECT_THAT(Parse(json), StatusIs(absl::StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr("files"), HasSubstr("at most 70"))));

  constexpr int64_t kLargest = int64_t{256} << 20;
  SHOAL_EXPECT_OK(Parse(With("/files/2/size_bytes", kLargest)));
  EXPECT_THAT(Parse(With("/files/2/size_bytes", kLargest + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("tiktoken.model"), HasSubstr("268435456"))));
}

TEST_F(ManifestTest, OnlyTheModelsBanksAreInExperts) {
  EXPECT_THAT(Parse(With("/files/2/path", "experts/layer-00009.bank")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("experts/")));
}

TEST_F(ManifestTest, NamesTheConfigBesideIt) {
  EXPECT_THAT(std::string(ParseManifest(text_, "{}", "c/manifest.json").status().message()),
              HasSubstr("c/config.json"));
}

TEST_F(ManifestTest, RefusesFilesThatAreNamedTwiceOrAreTheManifestItself) {
  for (const char* path : {"trunk.bin", "manifest.json", "SHA256SUMS"}) {
    EXPECT_THAT(Parse(With("/files/2/path", path)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(path)));
  }
}

TEST_F(ManifestTest, DigestsOfTheIdentityMustBeThoseOfTheFiles) {
  for (const char* path : {"config.json", "source_tensors.txt", "codebooks.bin"}) {
    const std::string pointer = absl::StrCat("/files/", FileIndex(path), "/sha256");
    EXPECT_THAT(Parse(With(pointer, Digest("other"))),
                StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr("sha256"))));
  }
  // Consistently changed, they make another identity.
  Json json = With("/source_tensors_sha256", Digest("other"));
  json["files"][FileIndex("source_tensors.txt")]["sha256"] = Digest("other");
  EXPECT_THAT(Parse(json), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("identity differs")));
}

TEST_F(ManifestTest, AnotherSeedOrConfigIsAnotherIdentity) {
  EXPECT_THAT(Parse(With("/settings/seed", 43)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("identity differs")));
  EXPECT_THAT(Parse(With("/identity", Digest("other"))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("identity differs")));
  // Even a config that says the same in other bytes.
  EXPECT_THAT(ParseManifest(text_, config_ + "\n", "m"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("config.json")));
}

TEST_F(ManifestTest, IdentityIsTheDigestOfWhatMadeTheContainer) {
  const std::string text = absl::StrCat(
      "shoal container identity 1\nconfig ", Digest(config_), "\nsource ", Digest("source"),
      "\nexperts rvq3\ntrunk q8\nseed 42\ncodebooks ", Digest("books"), "\n");
  EXPECT_EQ(ComputeIdentity(config_, manifest_), Digest(text));
  // It does not depend on who wrote the container nor on payloads, so a part has it too.
  Manifest part = manifest_;
  part.created_by = "someone else";
  part.source_fingerprint = "elsewhere";
  part.files.clear();
  part.trunk.clear();
  part.banks.clear();
  EXPECT_EQ(ComputeIdentity(config_, part), manifest_.identity);
}

TEST(TrunkLayoutTest, SizesAreThoseOfTheFormat) {
  // A vector of 300 floats behind 10 bytes.
  TrunkEntry entry = LayOutTrunkEntry("v", TrunkType::kF32, {300}, 10);
  EXPECT_EQ(entry.offset_bytes, 64U);
  EXPECT_EQ(entry.size_bytes, 1200U);
  EXPECT_EQ(entry.scales_offset_bytes, 0U);
  // 3 x 300 in bfloat16.
  entry = LayOutTrunkEntry("m", TrunkType::kBF16, {3, 300}, 64);
  EXPECT_EQ(entry.offset_bytes, 64U);
  EXPECT_EQ(entry.size_bytes, 1800U);
  // 3 x 300 in 8 bits: 900 values, padded to 960; 3 groups of 128 a row, 9 scales of 2 bytes.
  entry = LayOutTrunkEntry("m", TrunkType::kQ8, {3, 300}, 65);
  EXPECT_EQ(entry.offset_bytes, 128U);
  EXPECT_EQ(entry.scales_offset_bytes, 960U);
  EXPECT_EQ(entry.size_bytes, 978U);
  // In 4 bits a row is 64 + 64 + 22 bytes: 450 values, padded to 512.
  entry = LayOutTrunkEntry("m", TrunkType::kQ4, {3, 300}, 0);
  EXPECT_EQ(entry.offset_bytes, 0U);
  EXPECT_EQ(entry.scales_offset_bytes, 512U);
  EXPECT_EQ(entry.size_bytes, 530U);
  // Taps of a convolution, [channels, taps], count as a matrix.
  EXPECT_EQ(LayOutTrunkEntry("c", TrunkType::kF32, {128, 4}, 0).size_bytes, 2048U);
}

TEST(TrunkLayoutTest, RouterStaysLosslessAndVectorsStayFloat) {
  for (const TrunkType chosen :
       {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8, TrunkType::kQ4}) {
    EXPECT_EQ(StoredTrunkType(TrunkRole::kVector, chosen, true), TrunkType::kF32);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kRouter, chosen, true), TrunkType::kBF16);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kRouter, chosen, false), TrunkType::kF32);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kProjection, chosen, true), chosen);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kKeyUpProj, chosen, true), chosen);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kValueUpProj, chosen, true), chosen);
    const TrunkType wide = chosen == TrunkType::kQ4 ? TrunkType::kQ8 : chosen;
    EXPECT_EQ(StoredTrunkType(TrunkRole::kEmbedding, chosen, true), wide);
    EXPECT_EQ(StoredTrunkType(TrunkRole::kHead, chosen, true), wide);
  }
}

TEST(TrunkLayoutTest, TypeNamesAreReadBack) {
  for (const char* name : {"f32", "bf16", "q8", "q4"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const TrunkType type, TrunkTypeFromName(name));
    EXPECT_EQ(TrunkTypeName(type), name);
  }
  EXPECT_THAT(TrunkTypeFromName("Q8"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"Q8\"")));
}

TEST(TrunkLayoutTest, FileNamesCarryTheLayerInFiveDigits) {
  EXPECT_EQ(BankFile(12), "experts/layer-00012.bank");
  EXPECT_EQ(BankTreeFile(99999), "experts/layer-99999.tree");
}

}  // namespace
}  // namespace shoal

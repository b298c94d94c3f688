#include "common/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kBundledModel[] = SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear";

using Shape = std::vector<uint64_t>;

std::string LengthField(uint64_t length) {
  return {reinterpret_cast<const char*>(&length), sizeof(length)};
}

void WriteFile(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A safetensors file with one-dimensional float tensors.
std::string FloatFile(const std::map<std::string, std::vector<float>>& tensors) {
  std::string header;
  std::string data;
  for (const auto& [name, values] : tensors) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", name,
                    R"(":{"dtype":"F32","shape":[)", values.size(), R"(],"data_offsets":[)", begin,
                    ",", data.size(), "]}");
  }
  header += "}";
  return absl::StrCat(LengthField(header.size()), header, data);
}

// A checkpoint of two shards with an index that tests damage.
class ShardedCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "config.json", "{}");
    WriteFile(dir_ / "one.safetensors", FloatFile({{"a", {1, 2}}, {"b", {3}}}));
    WriteFile(dir_ / "two.safetensors", FloatFile({{"c", {4, 5, 6}}}));
    WriteIndex(R"("a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors")");
  }
  void WriteIndex(const std::string& entries) {
    WriteFile(dir_ / "model.safetensors.index.json",
              absl::StrCat(R"({"metadata": {}, "weight_map": {)", entries, "}}"));
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() { return Checkpoint::Open(dir_.path()); }

  TempDir dir_;
};

// A checkpoint of one file that tests damage.
class SingleFileCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    WriteFile(dir_ / "config.json", "{}");
    WriteFile(file_, FloatFile({{"a", {1, 2}}, {"b", {3}}}));
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> Open() { return Checkpoint::Open(dir_.path()); }

  TempDir dir_;
  std::string file_ = dir_ / "model.safetensors";
};

TEST(CheckpointTest, ReadsTheBundledModel) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(kBundledModel));
  EXPECT_EQ(checkpoint->directory(), kBundledModel);
  EXPECT_EQ(checkpoint->config_json(), FileText(absl::StrCat(kBundledModel, "/config.json")));
  // Counts and values were read from the file with Python's struct and numpy.
  EXPECT_EQ(checkpoint->tensors().size(), 829U);
  struct Expected {
    const char* name;
    DType dtype;
    Shape shape;
    float first, second, middle, last;
    double sum;
  };
  for (const Expected& tensor : {
           Expected{"model.embed_tokens.weight",
                    DType::kBF16,
                    {4096, 192},
                    -0x1.4ap-1F,
                    0x1.1p-8F,
                    -0x1.d8p-2F,
                    0x1.fp-4F,
                    -0x1.51225c28ap+10},
           Expected{"model.layers.0.self_attn.A_log",
                    DType::kF32,
                    {1, 1, 4, 1},
                    0x1.27ddfp+1F,
                    0x1.d01fbcp+0F,
                    0x1.ae70b6p+0F,
                    0x1.2703eap+1F,
                    0x1.038a84cp+3},
           Expected{"model.layers.3.self_attn.kv_b_proj.weight",
                    DType::kBF16,
                    {512, 128},
                    -0x1.76p-6F,
                    0x1.02p-4F,
                    0x1.08p-4F,
                    0x1.06p-4F,
                    0x1.e58c2108p+0},
           Expected{"model.layers.1.self_attn.dt_bias",
                    DType::kF32,
                    {256},
                    -0x1.806c5ep+2F,
                    -0x1.4c971ep+2F,
                    -0x1.413244p+1F,
                    -0x1.4036fp+1F,
                    -0x1.31e197bcp+10},
           Expected{"model.layers.7.block_sparse_moe.experts.31.w2.weight",
                    DType::kBF16,
                    {192, 64},
                    -0x1.14p-4F,
                    -0x1.9cp-5F,
                    0x1.64p-5F,
                    0x1.b4p-5F,
                    0x1.efb6962p+4},
           Expected{"lm_head.weight",
                    DType::kBF16,
                    {4096, 192},
                    0x1.04p-6F,
                    -0x1.84p-9F,
                    0x1.1cp-6F,
                    -0x1.8p-2F,
                    0x1.da1bf1f9e28p+12},
       }) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find(tensor.name, tensor.shape));
    EXPECT_EQ(info.dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(info.shape, tensor.shape) << tensor.name;
    std::vector<float> values(info.num_elements());
    SHOAL_ASSERT_OK(checkpoint->ReadFloat(tensor.name, info, values));
    EXPECT_EQ(values[0], tensor.first) << tensor.name;
    EXPECT_EQ(values[1], tensor.second) << tensor.name;
    EXPECT_EQ(values[values.size() / 2], tensor.middle) << tensor.name;
    EXPECT_EQ(values.back(), tensor.last) << tensor.name;
    double sum = 0;  // exact in any order: few significant bits of similar magnitude
    for (const float value : values) {
      sum += static_cast<double>(value);
    }
    EXPECT_EQ(sum, tensor.sum) << tensor.name;
  }
}

TEST_F(ShardedCheckpointTest, ReadsTensorsFromTheShardsOfTheIndex) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  EXPECT_EQ(checkpoint->tensors().size(), 3U);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("c", Shape{3}));
  EXPECT_EQ(info.file, "two.safetensors");
  std::vector<float> values(3);
  SHOAL_ASSERT_OK(checkpoint->ReadFloat("c", info, values));
  EXPECT_THAT(values, ElementsAre(4, 5, 6));
}

TEST_F(ShardedCheckpointTest, OneHandleServesManyThreads) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        const auto info = checkpoint->Find("a", Shape{2});
        ASSERT_THAT(info, shoal::testing::IsOk());
        std::vector<float> values(2);
        SHOAL_ASSERT_OK(checkpoint->ReadFloat("a", *info, values));
        ASSERT_THAT(values, ElementsAre(1, 2));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(ShardedCheckpointTest, NamesAShardThatIsMissing) {
  std::filesystem::remove(dir_ / "two.safetensors");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr("index.json names two.safetensors"),
                                     HasSubstr("No such file"))));
}

TEST_F(ShardedCheckpointTest, RefusesAnIndexThatNamesATensorTheShardDoesNotHold) {
  WriteIndex(
      R"("a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors",
         "d": "two.safetensors")");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("\"d\" is in two.safetensors"),
                                     HasSubstr("does not hold it"))));
}

TEST_F(ShardedCheckpointTest, RefusesAShardThatHoldsATensorTheIndexDoesNotName) {
  WriteIndex(R"("a": "one.safetensors", "c": "two.safetensors")");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("one.safetensors"), HasSubstr("\"b\""),
                                     HasSubstr("does not place there"))));
}

TEST_F(ShardedCheckpointTest, RefusesATensorThatTwoShardsHold) {
  WriteFile(dir_ / "two.safetensors", FloatFile({{"a", {7, 8}}, {"c", {4, 5, 6}}}));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("two.safetensors"), HasSubstr("\"a\""))));
}

TEST_F(ShardedCheckpointTest, CountsUnreadableTensorsWhenTheIndexIsCompared) {
  const std::string header = R"({"c": {"dtype": "I8", "shape": [2], "data_offsets": [0, 2]}})";
  WriteFile(dir_ / "two.safetensors", absl::StrCat(LengthField(header.size()), header, "xy"));
  SHOAL_EXPECT_OK(Open());
  WriteIndex(R"("a": "one.safetensors", "b": "one.safetensors", "z": "two.safetensors")");
  WriteFile(dir_ / "two.safetensors", absl::StrCat(LengthField(header.size()), header, "xy"));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"z\"")));
  // The same the other way round: an unreadable tensor that no index entry places.
  const std::string both =
      R"({"z": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
          "c": {"dtype": "I8", "shape": [2], "data_offsets": [4, 6]}})";
  WriteFile(dir_ / "two.safetensors", absl::StrCat(LengthField(both.size()), both, "0000xy"));
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("\"c\""), HasSubstr("does not place there"))));
}

TEST_F(ShardedCheckpointTest, RefusesShardPathsThatLeaveTheDirectory) {
  WriteFile(dir_ / "outside.safetensors", FloatFile({{"a", {1}}}));
  std::filesystem::create_directory(dir_ / "inner");
  WriteFile(dir_ / "inner/config.json", "{}");
  for (const char* path : {"../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "..", ".",
                           "", "one.safetensors\\u0000"}) {
    WriteFile(dir_ / "inner/model.safetensors.index.json",
              absl::StrCat(R"({"weight_map": {"a": ")", path, "\"}}"));
    EXPECT_THAT(Checkpoint::Open(dir_ / "inner"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("index.json"), HasSubstr("\"a\""),
                               HasSubstr("a file in the checkpoint's directory"))))
        << path;
  }
}

TEST_F(ShardedCheckpointTest, RefusesAnIndexThatIsNoMapOfNamesToFiles) {
  const std::map<std::string, std::string> indexes = {
      {"[]", "not a JSON object"},
      {"{\"weight_map\": ", "not a JSON object"},
      {"{}", "weight_map is missing"},
      {R"({"weight_map": []})", "weight_map is missing or not an object"},
      {R"({"weight_map": {}})", "names no tensor"},
      {R"({"weight_map": {"a": 7}})", "weight_map of tensor \"a\" is 7"},
      {R"({"weight_map": {"a": ["one.safetensors"]}})", "\"a\" is an array"},
      {R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})", "appears twice"},
  };
  for (const auto& [index, message] : indexes) {
    WriteFile(dir_ / "model.safetensors.index.json", index);
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("index.json"), HasSubstr(message))));
  }
}

TEST_F(ShardedCheckpointTest, AMissingTensorIsNamedWithTheFilesSearched) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  EXPECT_THAT(checkpoint->Find("absent", Shape{1}),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("absent"), HasSubstr("one.safetensors, two.safetensors"))));
}

TEST_F(SingleFileCheckpointTest, NamesAMissingDirectoryOrConfig) {
  EXPECT_THAT(Checkpoint::Open(dir_ / "nowhere"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("nowhere/config.json")));
}

TEST_F(SingleFileCheckpointTest, NamesBothFilesItLookedForWhenThereIsNeither) {
  std::filesystem::remove(file_);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kNotFound,
                               AllOf(HasSubstr("model.safetensors: "),
                                     HasSubstr("model.safetensors.index.json"))));
}

TEST_F(SingleFileCheckpointTest, RefusesAFileShorterThanItsLengthField) {
  WriteFile(file_, "1234567");
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                               AllOf(HasSubstr("model.safetensors"), HasSubstr("7 bytes"))));
}

TEST_F(SingleFileCheckpointTest, RefusesAHeaderLengthLargerThanTheFile) {
  const uint64_t lengths[] = {3, 1'000, std::numeric_limits<uint64_t>::max(),
                              std::numeric_limits<uint64_t>::max() - 7};
  for (const uint64_t length : lengths) {
    WriteFile(file_, LengthField(length) + "{}");
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss,
                                 AllOf(HasSubstr(absl::StrCat("header length ", length)),
                                       HasSubstr("file of 10 bytes"))));
  }
}

TEST_F(SingleFileCheckpointTest, RefusesAHeaderLengthAboveTheLimitThoughTheFileIsLarger) {
  WriteFile(file_, LengthField(100'000'001) + "{}");
  std::filesystem::resize_file(file_, 200'000'000);  // sparse
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("100000001"), HasSubstr("at most 100000000"))));
}

TEST_F(SingleFileCheckpointTest, RefusesATruncatedFileAtEveryLength) {
  const std::string whole = FileText(file_);
  for (size_t length = 0; length < whole.size(); ++length) {
    WriteFile(file_, whole.substr(0, length));
    EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("model.safetensors")))
        << length;
  }
}

TEST_F(SingleFileCheckpointTest, RefusesAFileThatIsNoRegularFile) {
  std::filesystem::remove(file_);
  std::filesystem::create_directory(file_);
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.safetensors")));
}

TEST_F(SingleFileCheckpointTest, AWrongShapeIsNamedWithTheExpectedOne) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  EXPECT_THAT(checkpoint->Find("a", Shape{3}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("model.safetensors"), HasSubstr("tensor a"),
                             HasSubstr("[2]"), HasSubstr("[3]"))));
  EXPECT_THAT(checkpoint->Find("a", Shape{2, 2}), Not(shoal::testing::IsOk()));
}

TEST_F(SingleFileCheckpointTest, DimensionsOfSizeOneDoNotCount) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("a", Shape{1, 1, 2, 1}));
  EXPECT_EQ(info.shape, Shape{2});
  SHOAL_EXPECT_OK(checkpoint->Find("b", Shape{}));
}

TEST_F(SingleFileCheckpointTest, RefusesATensorOfAnotherDTypeByNameWhenItIsAskedFor) {
  const std::string header = R"({"q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}})";
  WriteFile(file_, absl::StrCat(LengthField(header.size()), header, "xy"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  EXPECT_TRUE(checkpoint->tensors().empty());
  EXPECT_THAT(checkpoint->Find("q", Shape{2}),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("tensor q"), HasSubstr("F8_E4M3"), HasSubstr("BF16"))));
}

TEST_F(SingleFileCheckpointTest, NamesTensorAndIndexOfAWeightThatIsNotFinite) {
  // Far enough in that the read comes in more than one piece.
  const size_t far = (size_t{1} << 19) + 5;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    std::vector<float> values(far + 10, 1.0F);
    values[far] = bad;
    values[far + 1] = bad;
    WriteFile(file_, FloatFile({{"w", values}}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
    SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("w", Shape{values.size()}));
    EXPECT_THAT(checkpoint->ReadFloat("w", info, values),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("tensor w"), HasSubstr(absl::StrCat("element ", far)))));
  }
}

TEST_F(SingleFileCheckpointTest, RefusesHalvesAndBfloatsThatAreNotFinite) {
  for (const char* dtype : {"F16", "BF16"}) {
    const std::string header =
        absl::StrCat(R"({"w": {"dtype": ")", dtype, R"(", "shape": [2], "data_offsets": [0, 4]}})");
    // 0x7f80 is infinity in bfloat16 and NaN in float16; 0x0000 is zero in both.
    WriteFile(file_,
              absl::StrCat(LengthField(header.size()), header, std::string("\x00\x00\x80\x7f", 4)));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
    SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("w", Shape{2}));
    std::vector<float> values(2);
    EXPECT_THAT(checkpoint->ReadFloat("w", info, values),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("element 1")))
        << dtype;
  }
}

TEST_F(SingleFileCheckpointTest, ReadRawReturnsTheBytesOfTheFile) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("b", Shape{1}));
  float value = 0;
  SHOAL_ASSERT_OK(checkpoint->ReadRaw(info, std::as_writable_bytes(std::span<float>(&value, 1))));
  EXPECT_EQ(value, 3.0F);
}

TEST_F(SingleFileCheckpointTest, AFileThatShrinksAfterOpenIsDataLoss) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("b", Shape{1}));
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 1);
  std::vector<float> value(1);
  EXPECT_THAT(checkpoint->ReadFloat("b", info, value),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("tensor b"), HasSubstr("model.safetensors"))));
}

TEST_F(SingleFileCheckpointTest, ReadsIntoAWrongBufferOrOfAForeignTensorAreInternalErrors) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Open());
  SHOAL_ASSERT_OK_AND_ASSIGN(TensorInfo info, checkpoint->Find("a", Shape{2}));
  std::vector<float> three(3);
  EXPECT_THAT(checkpoint->ReadFloat("a", info, three),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("tensor a")));
  std::vector<std::byte> raw(7);
  EXPECT_THAT(checkpoint->ReadRaw(info, raw), StatusIs(absl::StatusCode::kInternal, HasSubstr("")));
  info.file = "other.safetensors";
  raw.resize(8);
  EXPECT_THAT(checkpoint->ReadRaw(info, raw), StatusIs(absl::StatusCode::kInternal, HasSubstr("")));
}

TEST_F(SingleFileCheckpointTest, TheFingerprintChangesWithConfigHeaderAndFileSize) {
  const auto fingerprint = [&] { return (*Open())->fingerprint(); };
  SHOAL_ASSERT_OK(Open());
  const std::string before = fingerprint();
  EXPECT_EQ(before.size(), 64U);
  EXPECT_EQ(fingerprint(), before);
  WriteFile(dir_ / "config.json", "{ }");
  const std::string other_config = fingerprint();
  EXPECT_NE(other_config, before);
  WriteFile(dir_ / "config.json", "{}");
  EXPECT_EQ(fingerprint(), before);
  WriteFile(file_, FloatFile({{"a", {1, 2}}, {"c", {3}}}));
  EXPECT_NE(fingerprint(), before);
  WriteFile(file_, FloatFile({{"a", {1, 2}}, {"b", {3}}}));
  EXPECT_EQ(fingerprint(), before);
}

TEST_F(ShardedCheckpointTest, TheFingerprintChangesWhenAShardIsRenamed) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto before, Open());
  std::filesystem::rename(dir_ / "two.safetensors", dir_ / "zwei.safetensors");
  WriteIndex(R"("a": "one.safetensors", "b": "one.safetensors", "c": "zwei.safetensors")");
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto after, Open());
  EXPECT_NE(after->fingerprint(), before->fingerprint());
}

}  // namespace
}  // namespace shoal

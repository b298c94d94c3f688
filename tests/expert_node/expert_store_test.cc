// The store against a reader that damages, refuses and counts.
#include "expert_node/expert_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/aligned_buffer.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kLayer = 3;
constexpr int64_t kExpert = 2;

UnitLayout SmallLayout() {
  auto layout = UnitLayout::Make(ExpertCodec::kRvq3, 40, 64);
  EXPECT_THAT(layout, testing::IsOk());
  return *layout;
}

// One expert's record, sealed, full of a pattern.
std::vector<std::byte> SealedRecord(const UnitLayout& layout) {
  std::vector<std::byte> record(layout.record_bytes);
  for (size_t i = 0; i < record.size(); ++i) {
    record[i] = static_cast<std::byte>(i * 31 % 251);
  }
  for (int64_t unit = 0; unit < layout.num_units; ++unit) {
    SealUnit(layout, {kLayer, kExpert}, unit,
             std::span(record).subspan(static_cast<uint64_t>(unit) * layout.unit_bytes,
                                       layout.unit_bytes));
  }
  return record;
}

// Serves one record; the first `damaged_reads` of it with a bit flipped at `damaged_byte`.
class FaultyReader final : public RecordReader {
 public:
  struct Faults {
    int damaged_reads = 0;
    size_t damaged_byte = 0;
    absl::Status error = {};
  };
  FaultyReader(std::vector<std::byte> record, Faults faults)
      : record_(std::move(record)), faults_(std::move(faults)) {}

  absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                    ReadCounts& counts) override {
    EXPECT_EQ(layer, kLayer);
    const uint64_t begin = offset_bytes - kExpert * record_.size();
    EXPECT_EQ(begin % kRecordAlignment, 0);
    EXPECT_EQ(out.size() % kRecordAlignment, 0);
    EXPECT_LE(begin + out.size(), record_.size());
    ++counts.reads;
    if (!faults_.error.ok()) {
      return faults_.error;
    }
    counts.bytes += out.size();
    std::memcpy(out.data(), record_.data() + begin, out.size());
    if (faults_.damaged_reads-- > 0 && faults_.damaged_byte - begin < out.size()) {
      out[faults_.damaged_byte - begin] ^= std::byte{0x10};
    }
    return absl::OkStatus();
  }
  std::string PathOf(int64_t) const override { return "/m/experts/layer-00003.bank"; }
  ReaderMode Mode() const override { return {true, "fake", ""}; }

 private:
  std::vector<std::byte> record_;
  Faults faults_;
};

struct ReadResult {
  absl::Status status;
  ReadCounts counts;
  std::vector<std::byte> units;
};

ReadResult ReadWith(FaultyReader::Faults faults, UnitRange units) {
  const UnitLayout layout = SmallLayout();
  SliceSource source;
  source.slice = {{0, layout.num_units}, {0, kExpert + 1}};
  source.unit_bytes = layout.unit_bytes;
  source.stride_bytes = layout.record_bytes;
  ExpertStore store(layout, source,
                    std::make_unique<FaultyReader>(SealedRecord(layout), std::move(faults)));
  auto buffer = AlignedBuffer::Allocate(layout.record_bytes);
  EXPECT_THAT(buffer, testing::IsOk());
  ReadResult result;
  result.status = store.ReadUnits({kLayer, kExpert}, units, buffer->bytes(), result.counts);
  const uint64_t first = source.ReadOf(kExpert, units).units_offset_bytes;
  const auto begin = buffer->bytes().begin() + static_cast<int64_t>(first);
  result.units.assign(begin, begin + units.size() * static_cast<int64_t>(layout.unit_bytes));
  return result;
}

ReadResult ReadWith(FaultyReader::Faults faults) {
  return ReadWith(std::move(faults), {0, SmallLayout().num_units});
}

TEST(ExpertStoreTest, ReadsAWholeRecordOnce) {
  const ReadResult result = ReadWith({});
  SHOAL_EXPECT_OK(result.status);
  EXPECT_EQ(result.counts.reads, 1);
  EXPECT_EQ(result.counts.bytes, SmallLayout().record_bytes);
}

// Every range of units: its bytes, and no more than alignment adds to them.
TEST(ExpertStoreTest, ReadsOnlyTheUnitsThatAreAskedFor) {
  const UnitLayout layout = SmallLayout();
  ASSERT_GT(layout.record_bytes, kRecordAlignment);
  const std::vector<std::byte> record = SealedRecord(layout);
  for (int64_t begin = 0; begin < layout.num_units; ++begin) {
    for (int64_t end = begin + 1; end <= layout.num_units; ++end) {
      const ReadResult result = ReadWith({}, {begin, end});
      SHOAL_EXPECT_OK(result.status);
      EXPECT_EQ(result.counts.reads, 1);
      const uint64_t first = static_cast<uint64_t>(begin) * layout.unit_bytes;
      const uint64_t last = static_cast<uint64_t>(end) * layout.unit_bytes;
      EXPECT_EQ(result.counts.bytes, (last + 4095) / 4096 * 4096 - first / 4096 * 4096);
      EXPECT_TRUE(std::equal(result.units.begin(), result.units.end(),
                             record.begin() + static_cast<int64_t>(first)));
    }
  }
}

TEST(ExpertStoreTest, ChecksOnlyTheUnitsThatAreAskedFor) {
  const UnitLayout layout = SmallLayout();
  // The last byte before unit 1, which the read for alignment's sake brings too.
  const FaultyReader::Faults faults{.damaged_reads = 2, .damaged_byte = layout.unit_bytes - 1};
  SHOAL_EXPECT_OK(ReadWith(faults, {1, 2}).status);
  EXPECT_THAT(ReadWith(faults, {0, 1}).status, StatusIs(absl::StatusCode::kDataLoss, _));
}

TEST(ExpertStoreTest, ReadsAgainWhatArrivedDamagedOnce) {
  const ReadResult result = ReadWith({.damaged_reads = 1, .damaged_byte = 100});
  SHOAL_EXPECT_OK(result.status);
  EXPECT_EQ(result.counts.reads, 2);
}

TEST(ExpertStoreTest, NamesFileLayerExpertAndUnitOfLastingDamage) {
  const UnitLayout layout = SmallLayout();
  for (int64_t unit = 0; unit < layout.num_units; ++unit) {
    for (const uint64_t byte : {uint64_t{0}, uint64_t{5}, uint64_t{20}, layout.unit_bytes - 1}) {
      const ReadResult result =
          ReadWith({.damaged_reads = 2,
                    .damaged_byte = static_cast<uint64_t>(unit) * layout.unit_bytes + byte});
      EXPECT_THAT(
          result.status,
          StatusIs(absl::StatusCode::kDataLoss,
                   AllOf(HasSubstr("layer-00003.bank"), HasSubstr("layer 3"), HasSubstr("expert 2"),
                         HasSubstr(absl::StrCat("unit ", unit)), HasSubstr("restore it"))));
      EXPECT_EQ(result.counts.reads, 2);
    }
  }
}

TEST(ExpertStoreTest, PassesOnTheReadersErrorsWithLayerAndExpert) {
  const ReadResult result = ReadWith({.error = absl::UnavailableError("Input/output error")});
  EXPECT_THAT(result.status,
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("layer 3 expert 2"), HasSubstr("Input/output error"))));
  EXPECT_EQ(result.counts.reads, 1);
}

}  // namespace
}  // namespace shoal

// Feeds the reader of partition.json, and what it accepts to the check against a manifest.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/container/manifest.h"
#include "common/container/partition_index.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// A container of one MoE layer with 4 experts of 8 units.
shoal::Manifest SmallManifest() {
  shoal::Manifest manifest;
  manifest.identity = std::string(64, 'a');
  manifest.unit_layout = shoal::UnitLayout::Make(shoal::ExpertCodec::kF32, 8, 64).value();
  manifest.config.moe.num_experts = 4;
  manifest.banks.resize(1);
  manifest.banks[0].layer = 1;
  for (const std::string& path : {std::string(shoal::kConfigFile), shoal::BankTreeFile(1)}) {
    manifest.files.push_back({path, 64, std::string(64, 'b')});
  }
  return manifest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = shoal::ParsePartition(text, "fuzz");
  if (!index.ok()) {
    return 0;
  }
  // Written again it is the same.
  const std::string written = shoal::SerializePartition(*index);
  const auto again = shoal::ParsePartition(written, "again");
  Expect(again.ok() && shoal::SerializePartition(*again) == written);

  const shoal::Manifest manifest = SmallManifest();
  if (!shoal::CheckPartition(*index, manifest, "fuzz").ok()) {
    return 0;
  }
  // What an accepted partition promises to readers of its banks.
  uint64_t units = 0;
  for (const shoal::ExpertSlice& slice : index->slices) {
    Expect(!slice.empty() && slice.units.end <= 8 && slice.experts.end <= 4);
    units += static_cast<uint64_t>(slice.units.size() * slice.experts.size());
  }
  Expect(units > 0 && units <= 8 * 4);
  for (const shoal::FileEntry& file : index->files) {
    Expect(!file.path.empty() && file.path[0] != '/' && file.path.find("..") == std::string::npos);
  }
  return 0;
}

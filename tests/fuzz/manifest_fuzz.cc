// Feeds the reader of manifest.json. Input: the text of config.json, a zero byte, the manifest.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "common/container/manifest.h"
#include "common/io/checked_range.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// Whether [offset, offset + size) lies in the file.
bool InFile(const shoal::Manifest& manifest, absl::string_view path, uint64_t offset,
            uint64_t size) {
  const shoal::FileEntry* file = manifest.FindFile(path);
  return file != nullptr && shoal::RangeFits(offset, size, file->size_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t config_end = input.find('\0');
  if (config_end == absl::string_view::npos) {
    return 0;
  }
  const absl::string_view config = input.substr(0, config_end);
  const auto manifest = shoal::ParseManifest(input.substr(config_end + 1), config, "fuzz");
  if (!manifest.ok()) {
    return 0;
  }
  // What an accepted manifest promises to readers of the files.
  for (const shoal::TrunkEntry& entry : manifest->trunk) {
    Expect(InFile(*manifest, shoal::kTrunkFile, entry.offset_bytes, entry.size_bytes));
    Expect(entry.scales_offset_bytes <= entry.size_bytes);
  }
  const auto experts = static_cast<uint64_t>(manifest->config.moe.num_experts);
  for (const shoal::BankEntry& bank : manifest->banks) {
    const auto bytes = shoal::CheckedMul(experts, manifest->unit_layout.record_bytes);
    Expect(bytes && InFile(*manifest, shoal::BankFile(bank.layer), 0, *bytes));
  }
  for (const shoal::FileEntry& file : manifest->files) {
    Expect(!file.path.empty() && file.path[0] != '/' && file.path.find("..") == std::string::npos);
  }
  // Written again it is the same manifest.
  const std::string text = shoal::SerializeManifest(*manifest);
  const auto again = shoal::ParseManifest(text, config, "again");
  Expect(again.ok() && shoal::SerializeManifest(*again) == text);
  return 0;
}

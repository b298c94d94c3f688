// Feeds the safetensors header parser. Input: the size of the data as 8 little-endian bytes, then
// the header's text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "common/checkpoint/checkpoint.h"
#include "common/io/checked_range.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t data_bytes = 0;
  if (size < sizeof(data_bytes)) {
    return 0;
  }
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const absl::string_view text(reinterpret_cast<const char*>(data) + sizeof(data_bytes),
                               size - sizeof(data_bytes));
  const auto header = shoal::ParseSafetensorsHeader(text, data_bytes, "fuzz");
  if (!header.ok()) {
    return 0;
  }
  // What an accepted header promises to the reader.
  for (const auto& [name, info] : header->tensors) {
    const auto elements = shoal::CheckedProduct(info.shape);
    if (!shoal::RangeFits(info.offset_bytes, info.size_bytes, data_bytes) || !elements ||
        *elements != info.num_elements()) {
      std::abort();
    }
  }
  return 0;
}

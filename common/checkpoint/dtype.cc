#include "common/checkpoint/dtype.h"

#include <cstring>

#include "kernels/math.h"

namespace shoal {

std::optional<DType> DTypeFromName(absl::string_view name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == DTypeName(dtype)) {
      return dtype;
    }
  }
  return std::nullopt;
}

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
  }
  return "";
}

uint64_t DTypeBytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

void WidenToFloat(DType dtype, std::span<const std::byte> raw, std::span<float> out) {
  if (out.empty()) {
    return;  // memcpy takes no null pointer, not even for nothing
  }
  if (dtype == DType::kF32) {
    std::memcpy(out.data(), raw.data(), out.size_bytes());
    return;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, raw.data() + 2 * i, sizeof(bits));
    out[i] = dtype == DType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
  }
}

}  // namespace shoal

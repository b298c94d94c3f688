// Element types of source checkpoints and their widening to float.
#ifndef SHOAL_COMMON_CHECKPOINT_DTYPE_H_
#define SHOAL_COMMON_CHECKPOINT_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/strings/string_view.h"

namespace shoal {

enum class DType { kF32, kF16, kBF16 };

// "F32", "F16", "BF16" as written in safetensors headers; nothing for any other name.
std::optional<DType> DTypeFromName(absl::string_view name);
absl::string_view DTypeName(DType dtype);
uint64_t DTypeBytes(DType dtype);

// Widens little-endian elements to float, exactly. raw.size() == out.size() * DTypeBytes(dtype);
// `raw` need not be aligned.
void WidenToFloat(DType dtype, std::span<const std::byte> raw, std::span<float> out);

}  // namespace shoal

#endif  // SHOAL_COMMON_CHECKPOINT_DTYPE_H_

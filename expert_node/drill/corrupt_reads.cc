#include "expert_node/drill/corrupt_reads.h"

#include <cstddef>

#include "common/container/unit_layout.h"
#include "common/status/status_macros.h"

namespace shoal {

void CorruptReads::Begin(int64_t records) {
  MutexLock lock(&mutex_);
  records_ = records;
}

void CorruptReads::End() {
  MutexLock lock(&mutex_);
  records_ = 0;
  again_.clear();
}

bool CorruptReads::Take(const Place& place) {
  MutexLock lock(&mutex_);
  if (again_.erase(place) > 0) {
    return true;
  }
  if (records_ == 0) {
    return false;
  }
  --records_;
  again_.insert(place);
  return true;
}

absl::Status CorruptedReader::Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                                   ReadCounts& counts) {
  SHOAL_RETURN_IF_ERROR(reader_->Read(layer, offset_bytes, out, counts));
  if (corrupt_.Take({this, layer, offset_bytes})) {
    // In every 64 bytes, so that no unit in the read stays whole.
    for (size_t i = kSectionAlignment / 2; i < out.size(); i += kSectionAlignment) {
      out[i] ^= std::byte{1};
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal

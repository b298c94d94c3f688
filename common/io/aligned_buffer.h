// Memory for direct reads and vector loads.
#ifndef SHOAL_COMMON_IO_ALIGNED_BUFFER_H_
#define SHOAL_COMMON_IO_ALIGNED_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

namespace shoal {

// Move-only owner of zeroed, page-aligned anonymous memory, returned to the system at once when it
// goes (so that the process's resident size follows what is owned). An empty buffer has size 0.
class AlignedBuffer {
 public:
  static constexpr size_t kAlignment = 4096;

  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // RESOURCE_EXHAUSTED when the system refuses.
  static absl::StatusOr<AlignedBuffer> Allocate(size_t size_bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() { return {data_, size_bytes_}; }
  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }

  // The buffer as an array of T (trivial types only), as many as fit.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_bytes_ / sizeof(T)};
  }

 private:
  AlignedBuffer(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_ALIGNED_BUFFER_H_

#include "common/io/aligned_buffer.h"

#include <sys/mman.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"

namespace shoal {

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) {
    ::munmap(data_, size_bytes_);
  }
}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    if (data_ != nullptr) {
      ::munmap(data_, size_bytes_);
    }
    data_ = std::exchange(other.data_, nullptr);
    size_bytes_ = std::exchange(other.size_bytes_, 0);
  }
  return *this;
}

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(size_t size_bytes) {
  if (size_bytes == 0) {
    return AlignedBuffer();
  }
  void* data =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ErrnoToStatus(errno, absl::StrCat("allocate ", size_bytes, " bytes"));
  }
  return AlignedBuffer(static_cast<std::byte*>(data), size_bytes);
}

}  // namespace shoal

// Reads records with pread: past the page cache (O_DIRECT) where the file system allows it.
#ifndef SHOAL_EXPERT_NODE_PREAD_RECORD_READER_H_
#define SHOAL_EXPERT_NODE_PREAD_RECORD_READER_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "expert_node/record_reader.h"

namespace shoal {

// The bank of one layer, and the size that the manifest gives it.
struct BankLocation {
  int64_t layer = 0;
  std::string path;
  uint64_t size_bytes = 0;
};

// The two system calls whose answers depend on file system and hardware. Tests give their own.
struct PreadCalls {
  std::function<int(const char* path, int flags)> open;
  std::function<ssize_t(int fd, void* buffer, size_t length, off_t offset)> pread;

  static PreadCalls System();
};

// A read is one pread of its whole length. One that comes back short goes on from there, which
// costs and counts another. A bank whose file system refuses direct reads, when it is opened or at
// its first read, is read through the page cache, and its pages are dropped after each read: the
// memory budget covers them too. Mode() says so.
class PreadRecordReader final : public RecordReader {
 public:
  // Opens every bank.
  //   NOT_FOUND, PERMISSION_DENIED, UNAVAILABLE   the system refused; names the file
  //   INVALID_ARGUMENT   not a regular file, or a layer is given twice
  //   DATA_LOSS          a size differs from the manifest's
  static absl::StatusOr<std::unique_ptr<PreadRecordReader>> Open(
      const std::vector<BankLocation>& banks, PreadCalls calls = PreadCalls::System());
  ~PreadRecordReader() override;

  absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                    ReadCounts& counts) override;
  std::string PathOf(int64_t layer) const override;
  ReaderMode Mode() const override;

 private:
  struct Impl;
  explicit PreadRecordReader(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_PREAD_RECORD_READER_H_

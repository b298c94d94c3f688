// Where the bytes of expert records come from. An interface, so that tests can put faults between
// the store and the disk.
#ifndef SHOAL_EXPERT_NODE_RECORD_READER_H_
#define SHOAL_EXPERT_NODE_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace shoal {

// What reads cost. Callers pass one in and it grows, also where the read fails.
struct ReadCounts {
  int64_t reads = 0;   // system calls that returned data, an error, or the end of the file
  uint64_t bytes = 0;  // that arrived
};

// How the reader really reads: what the system granted, not what was asked.
struct ReaderMode {
  bool direct = false;         // past the page cache, in every bank
  std::string engine;          // "pread"
  std::string why_not_direct;  // the first refusal, with its file; empty where direct
};

// Thread-safe.
class RecordReader {
 public:
  virtual ~RecordReader() = default;

  // Fills `out` with the bytes of the layer's bank from `offset_bytes` on. Offset, length and
  // address of `out` are multiples of kRecordAlignment. Blocks.
  //   NOT_FOUND         there is no bank for this layer
  //   INVALID_ARGUMENT  not aligned
  //   DATA_LOSS         the file ends first; names it
  //   UNAVAILABLE       the system refused; names the file, ends with the system's own words
  virtual absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                            ReadCounts& counts) = 0;

  // The layer's file, for messages.
  virtual std::string PathOf(int64_t layer) const = 0;

  // May change from direct to buffered while reads go on, never back.
  virtual ReaderMode Mode() const = 0;
};

// Puts something between a slice's reader and who reads; returns what is read from then on.
using WrapReader =
    std::function<std::unique_ptr<RecordReader>(std::unique_ptr<RecordReader> reader)>;

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_RECORD_READER_H_

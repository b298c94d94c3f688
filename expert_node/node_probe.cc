#include "expert_node/node_probe.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/aligned_buffer.h"
#include "common/io/file.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "expert_node/pread_record_reader.h"

namespace shoal {
namespace {

// As many as a backend reads at a time.
constexpr int kReaders = 4;

// A row that is not zero, and the first experts of a slice, as many as a row chooses.
struct ProbeBatch {
  ProbeBatch(const ExpertModel& model, const ExpertSlice& slice)
      : rows(static_cast<size_t>(model.layout.hidden_size)),
        ids(static_cast<size_t>(model.num_experts_per_token)),
        weights(ids.size(), 1.0F / static_cast<float>(ids.size())),
        layer(model.layers.front()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = i % 2 == 0 ? 0.5F : -0.25F;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(slice.experts.begin +
                                    static_cast<int64_t>(i) % slice.experts.size());
    }
  }
  ExpertBackend::Batch View() const { return {layer, 1, rows, ids, weights}; }

  std::vector<float> rows;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t layer;
};

absl::Duration ComputeTime(const ExpertBackend& backend) {
  absl::Duration time;
  for (const ExpertLayerStats& stats : backend.Stats()) {
    time += stats.compute_time;
  }
  return time;
}

// One read of something that `random` chooses, into a buffer for the largest.
using ReadOne = std::function<absl::Status(std::mt19937& random, std::span<std::byte> buffer,
                                           ReadCounts& counts)>;

size_t Below(size_t count, std::mt19937& random) { return random() % count; }

// Reads in random order until it is over, an error, or others' error.
class RandomReads {
 public:
  RandomReads(ReadOne read, uint64_t largest_bytes, absl::Time end, const Clock& clock)
      : read_(std::move(read)), largest_bytes_(largest_bytes), end_(end), clock_(clock) {}

  void Run(uint32_t seed) {
    const absl::Status status = ReadUntilEnd(seed);
    if (!status.ok()) {
      MutexLock lock(&mutex_);
      status_ = status;
      failed_ = true;
    }
  }
  uint64_t bytes() const { return bytes_; }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  absl::Status ReadUntilEnd(uint32_t seed) {
    SHOAL_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Allocate(largest_bytes_));
    std::mt19937 random(seed);
    do {
      ReadCounts counts;
      SHOAL_RETURN_IF_ERROR(read_(random, buffer.bytes(), counts));
      bytes_ += counts.bytes;
    } while (clock_.Now() < end_ && !failed_);
    return absl::OkStatus();
  }

  const ReadOne read_;
  const uint64_t largest_bytes_;
  const absl::Time end_;
  const Clock& clock_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

uint64_t PerSecond(uint64_t bytes, absl::Duration time) {
  const double seconds = std::max(absl::ToDoubleSeconds(time), 1e-9);
  return static_cast<uint64_t>(static_cast<double>(bytes) / seconds);
}

absl::StatusOr<uint64_t> MeasureReads(ReadOne read, uint64_t largest_bytes, absl::Duration duration,
                                      const Clock& clock) {
  const absl::Time start = clock.Now();
  RandomReads reads(std::move(read), largest_bytes, start + duration, clock);
  std::vector<std::thread> readers;
  readers.reserve(kReaders);
  for (uint32_t seed = 1; seed <= kReaders; ++seed) {
    readers.emplace_back([&reads, seed] { reads.Run(seed); });
  }
  for (std::thread& reader : readers) {
    reader.join();
  }
  SHOAL_RETURN_IF_ERROR(reads.status());
  return PerSecond(reads.bytes(), clock.Now() - start);
}

// A file without a name, of pieces that no file system makes smaller.
absl::StatusOr<UniqueFd> WriteScratch(const std::string& directory, uint64_t size_bytes,
                                      uint64_t piece_bytes) {
  std::string path = absl::StrCat(directory, "/.shoal-scratch-XXXXXX");
  UniqueFd fd(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create a scratch file in ", directory));
  }
  ::unlink(path.c_str());
  SHOAL_ASSIGN_OR_RETURN(AlignedBuffer piece, AlignedBuffer::Allocate(piece_bytes));
  std::mt19937 random(1);
  std::generate(piece.as<uint32_t>().begin(), piece.as<uint32_t>().end(), std::ref(random));
  for (uint64_t done = 0; done < size_bytes; done += piece_bytes) {
    SHOAL_RETURN_IF_ERROR(WriteAll(fd, path, piece.bytes()));
  }
  SHOAL_RETURN_IF_ERROR(SyncFile(fd, path));
  DropPageCache(fd, 0, 0);
  return fd;
}

}  // namespace

absl::Status ProbeExperts(ExpertBackend& backend, const ExpertModel& model,
                          const HeldUnits& units) {
  for (const ExpertSlice& slice : units.slices()) {
    const ProbeBatch batch(model, slice);
    std::vector<int64_t> sums(batch.rows.size());
    SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MeasureReadRate(const HeldUnits& units, absl::Duration duration,
                                         const Clock& clock) {
  return MeasureReads(
      [&units](std::mt19937& random, std::span<std::byte> buffer, ReadCounts& counts) {
        ExpertStore& store = *units.stores()[Below(units.stores().size(), random)];
        const SliceSource& source = store.source();
        const int64_t layer = source.banks[Below(source.banks.size(), random)].layer;
        const int64_t expert =
            source.slice.experts.begin +
            static_cast<int64_t>(Below(static_cast<size_t>(source.slice.experts.size()), random));
        return store.ReadUnits({layer, expert}, source.slice.units, buffer, counts);
      },
      units.largest_read_bytes(), duration, clock);
}

absl::StatusOr<uint64_t> MeasureScratchReadRate(const std::string& directory,
                                                absl::Duration duration, const Clock& clock) {
  constexpr uint64_t kFileBytes = uint64_t{64} << 20;
  constexpr uint64_t kPieceBytes = kScratchReadBytes;
  constexpr uint64_t kShareOfDisk = 8;
  SHOAL_ASSIGN_OR_RETURN(const uint64_t free, FreeDiskBytes(directory));
  if (free / kShareOfDisk < kFileBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the file system of ", directory, " has ",
                                                     free, " bytes free, too few to measure it"));
  }
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, WriteScratch(directory, kFileBytes, kPieceBytes));
  // By the descriptor: the file has no other name.
  SHOAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<PreadRecordReader> reader,
      PreadRecordReader::Open({{0, absl::StrCat("/proc/self/fd/", fd.get()), kFileBytes}}));
  return MeasureReads(
      [&reader](std::mt19937& random, std::span<std::byte> buffer, ReadCounts& counts) {
        return reader->Read(0, Below(kFileBytes / kPieceBytes, random) * kPieceBytes, buffer,
                            counts);
      },
      kPieceBytes, duration, clock);
}

absl::StatusOr<uint64_t> MeasureComputeRate(ExpertBackend& backend, const ExpertModel& model,
                                            const HeldUnits& units, absl::Duration duration,
                                            const Clock& clock) {
  const ExpertSlice& slice = units.slices().front();
  const ProbeBatch batch(model, slice);
  std::vector<int64_t> sums(batch.rows.size());
  SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));  // into the cache
  const absl::Duration before = ComputeTime(backend);
  const absl::Time end = clock.Now() + duration;
  uint64_t bytes = 0;
  do {
    SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));
    bytes += batch.ids.size() * static_cast<uint64_t>(slice.units.size()) * model.layout.unit_bytes;
  } while (clock.Now() < end);
  return PerSecond(bytes, ComputeTime(backend) - before);
}

}  // namespace shoal

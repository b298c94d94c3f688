#include "expert_node/pread_record_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/unit_layout.h"
#include "common/io/file.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"

namespace shoal {
namespace {

// O_NONBLOCK: a pipe in place of a bank is refused below instead of waited for.
constexpr int kOpenFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

struct Bank {
  std::string path;
  UniqueFd fd;
  std::atomic<bool> direct{false};
};

bool IsAligned(uint64_t offset_bytes, std::span<std::byte> out) {
  return offset_bytes % kRecordAlignment == 0 && out.size() % kRecordAlignment == 0 &&
         reinterpret_cast<uintptr_t>(out.data()) % kRecordAlignment == 0;
}

absl::Status CheckFile(const Bank& bank, uint64_t size_bytes) {
  struct stat info {};
  if (::fstat(bank.fd.get(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", bank.path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("open ", bank.path, ": not a regular file"));
  }
  if (static_cast<uint64_t>(info.st_size) != size_bytes) {
    return absl::DataLossError(absl::StrCat("open ", bank.path, ": ", info.st_size,
                                            " bytes, the manifest says ", size_bytes,
                                            "; the copy is incomplete, copy or convert it again"));
  }
  return absl::OkStatus();
}

}  // namespace

struct PreadRecordReader::Impl {
  PreadCalls calls;
  std::map<int64_t, Bank> banks;  // by layer; constant after Open but for Bank::direct
  mutable Mutex mutex;
  std::string why_not_direct ABSL_GUARDED_BY(mutex);

  absl::Status OpenBank(const BankLocation& location);
  void GiveUpDirect(Bank& bank, int error_number);
  absl::Status ReadAll(Bank& bank, uint64_t offset_bytes, std::span<std::byte> out,
                       ReadCounts& counts);
};

PreadCalls PreadCalls::System() {
  return {[](const char* path, int flags) { return ::open(path, flags); }, ::pread};
}

absl::Status PreadRecordReader::Impl::OpenBank(const BankLocation& location) {
  const auto [it, is_new] = banks.try_emplace(location.layer);
  if (!is_new) {
    return absl::InvalidArgumentError(
        absl::StrCat("open ", location.path, ": layer ", location.layer, " has a bank already"));
  }
  Bank& bank = it->second;
  bank.path = location.path;
  bank.fd = UniqueFd(calls.open(bank.path.c_str(), kOpenFlags | O_DIRECT));
  bank.direct = bank.fd.valid();
  if (!bank.fd.valid() && errno == EINVAL) {
    GiveUpDirect(bank, errno);
    bank.fd = UniqueFd(calls.open(bank.path.c_str(), kOpenFlags));
  }
  if (!bank.fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", bank.path));
  }
  return CheckFile(bank, location.size_bytes);
}

void PreadRecordReader::Impl::GiveUpDirect(Bank& bank, int error_number) {
  bank.direct = false;
  MutexLock lock(&mutex);
  if (why_not_direct.empty()) {
    why_not_direct = absl::StrCat("the file system of ", bank.path,
                                  " refuses direct reads: ", std::strerror(error_number));
  }
}

absl::Status PreadRecordReader::Impl::ReadAll(Bank& bank, uint64_t offset_bytes,
                                              std::span<std::byte> out, ReadCounts& counts) {
  size_t done = 0;
  while (done < out.size()) {
    const bool direct = bank.direct;
    const ssize_t n = calls.pread(bank.fd.get(), out.data() + done, out.size() - done,
                                  static_cast<off_t>(offset_bytes + done));
    const int error = n < 0 ? errno : 0;
    if (error == EINTR) {
      continue;
    }
    if (error == EINVAL && direct) {
      // Some file systems grant O_DIRECT and refuse the reads. Aligned reads have no other cause.
      // The descriptor changes first: a thread that sees bank.direct false reads buffered.
      // One that saw it true comes here too, and reads again.
      if (::fcntl(bank.fd.get(), F_SETFL, O_NONBLOCK) == 0) {
        GiveUpDirect(bank, error);
        continue;
      }
    }
    ++counts.reads;
    if (n < 0) {
      return ErrnoToStatus(error, absl::StrCat("read ", bank.path, " at ", offset_bytes + done));
    }
    done += static_cast<size_t>(n);
    counts.bytes += static_cast<uint64_t>(n);
    // A direct read comes back unaligned at the end of the file only, and cannot go on from there.
    if (n == 0 || (direct && done % kRecordAlignment != 0)) {
      return absl::DataLossError(absl::StrCat(
          "read ", bank.path, ": the file ends at byte ", offset_bytes + done, ", ",
          out.size() - done, " bytes too early; it was cut after it was opened, restore it"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PreadRecordReader>> PreadRecordReader::Open(
    const std::vector<BankLocation>& banks, PreadCalls calls) {
  auto impl = std::make_unique<Impl>();
  impl->calls = std::move(calls);
  for (const BankLocation& location : banks) {
    SHOAL_RETURN_IF_ERROR(impl->OpenBank(location));
  }
  return std::unique_ptr<PreadRecordReader>(new PreadRecordReader(std::move(impl)));
}

PreadRecordReader::PreadRecordReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreadRecordReader::~PreadRecordReader() = default;

absl::Status PreadRecordReader::Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                                     ReadCounts& counts) {
  const auto it = impl_->banks.find(layer);
  if (it == impl_->banks.end()) {
    return absl::NotFoundError(absl::StrCat("read experts: layer ", layer, " has no bank"));
  }
  Bank& bank = it->second;
  if (!IsAligned(offset_bytes, out)) {
    return absl::InvalidArgumentError(
        absl::StrCat("read ", bank.path, ": offset ", offset_bytes, ", length ", out.size(),
                     " and the buffer must be aligned to ", kRecordAlignment));
  }
  absl::Status status = impl_->ReadAll(bank, offset_bytes, out, counts);
  if (!bank.direct) {
    DropPageCache(bank.fd, offset_bytes, out.size());
  }
  return status;
}

std::string PreadRecordReader::PathOf(int64_t layer) const {
  const auto it = impl_->banks.find(layer);
  return it == impl_->banks.end() ? absl::StrCat("the bank of layer ", layer) : it->second.path;
}

ReaderMode PreadRecordReader::Mode() const {
  MutexLock lock(&impl_->mutex);
  return {impl_->why_not_direct.empty(), "pread", impl_->why_not_direct};
}

}  // namespace shoal

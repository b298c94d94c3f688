#include "expert_node/program/empty_node.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/container/staging_directory.h"
#include "common/io/file.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "common/sync/service_manager.h"
#include "expert_node/fill/partition_filler.h"
#include "expert_node/node_probe.h"
#include "expert_node/program/node_report.h"
#include "expert_node/service/empty_node_server.h"

namespace shoal {
namespace {

constexpr absl::Duration kMeasureTime = absl::Milliseconds(250);

// Descriptors that become readable: with a signal, and with Ring.
class Events {
 public:
  static absl::StatusOr<std::unique_ptr<Events>> Make(const sigset_t& signals) {
    auto events = std::make_unique<Events>();
    events->signals_ = UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC));
    events->bell_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!events->signals_.valid() || !events->bell_.valid()) {
      return ErrnoToStatus(errno, "make descriptors to wait with");
    }
    return events;
  }

  // Any thread.
  void Ring() {
    const uint64_t one = 1;
    // Cannot fail: the counter is far from its end.
    (void)!::write(bell_.get(), &one, sizeof(one));
  }

  EmptyNodeEnd Wait() {
    pollfd ready[] = {{bell_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    while (true) {
      ::poll(ready, std::size(ready), -1);
      if (ready[0].revents != 0) {
        return EmptyNodeEnd::kFilled;
      }
      if (ready[1].revents != 0) {
        signalfd_siginfo taken{};
        (void)!::read(signals_.get(), &taken, sizeof(taken));
        return EmptyNodeEnd::kSignal;
      }
    }
  }

 private:
  UniqueFd signals_;
  UniqueFd bell_;
};

std::string ParentOf(const std::string& directory) {
  const std::string parent =
      std::filesystem::path(WithoutTrailingSlashes(directory)).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::StatusOr<uint64_t> Measure(const NodeFlags& flags) {
  if (flags.no_measure) {
    return 0;
  }
  absl::StatusOr<uint64_t> rate =
      MeasureScratchReadRate(ParentOf(flags.directory), kMeasureTime, Clock::Real());
  if (absl::IsResourceExhausted(rate.status())) {
    Note(absl::StrCat("the disk is not measured: ", std::string(rate.status().message())));
    return 0;
  }
  return rate;
}

void SayReady(const NodeFlags& flags, const std::string& where, uint64_t read_rate) {
  PrintLine(flags.json,
            {{"listening_on", where},
             {"name", flags.name},
             {"empty", true},
             {"read_bytes_per_second", read_rate},
             {"free_disk_bytes", FreeDiskBytes(ParentOf(flags.directory)).value_or(0)}},
            absl::StrCat("listening on ", where));
  TellServiceManager(absl::StrCat("READY=1\nSTATUS=empty: waiting on ", where, " to be filled"));
  Note(absl::StrCat(flags.directory, " is empty: waiting to be filled (`shoal fill`)"));
}

}  // namespace

absl::StatusOr<EmptyNodeEnd> ServeEmptyNode(const NodeFlags& flags, const EndSignals& signals,
                                            const ServerSecurity& security, NetAddress& address) {
  std::optional<EndAtOnce> opening(signals);
  SHOAL_RETURN_IF_ERROR(CheckFillTarget(flags.directory));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Events> events, Events::Make(signals.held()));
  EmptyNodeServer::Options options;
  options.fill.name = flags.name;
  options.fill.directory = flags.directory;
  options.fill.beyond_loopback = flags.insecure || security.own != nullptr;
  options.fill.own = security.own;
  options.security = security;
  options.fill.on_note = [](absl::string_view line) { Note(line); };
  options.address = address;
  options.on_filled = [&events] { events->Ring(); };
  SHOAL_ASSIGN_OR_RETURN(options.read_bytes_per_second, Measure(flags));
  const uint64_t read_rate = options.read_bytes_per_second;
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<EmptyNodeServer> server,
                         EmptyNodeServer::Start(std::move(options)));
  address = server->address();
  opening.reset();
  SayReady(flags, address.ToString(), read_rate);
  const EmptyNodeEnd end = events->Wait();
  if (end == EmptyNodeEnd::kSignal) {
    // The next one has its usual effect, should stopping a copy take long.
    ::pthread_sigmask(SIG_UNBLOCK, &signals.held(), nullptr);
  }
  Note(end == EmptyNodeEnd::kFilled ? "filled; the partition is opened"
                                    : "ending: it holds nothing yet; what was finished is kept");
  return end;
}

}  // namespace shoal

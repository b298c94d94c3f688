#include "expert_node/service/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {
namespace {

constexpr int kLookAgainMs = 500;
constexpr int kAcceptedAtOnce = 64;
// What the process may still want to open.
constexpr int64_t kKeptDescriptors = 128;
constexpr int kFewest = 16;
constexpr int kUserTimeoutMs = 5'000;

// As many connections as there are descriptors for: the socket, and the one that it is watched by.
int AsManyAs(int most) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return most;
  }
  std::error_code error;
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd", error), {});
  const int64_t left =
      static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) - open - kKeptDescriptors;
  return static_cast<int>(std::clamp<int64_t>(left / 2, kFewest, std::max(most, kFewest)));
}

// "1.2.3.4:5"; empty where it is no address of the internet. An IPv4 address that is written as one of
// IPv6 is that of IPv4.
std::string NameOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return absl::StrCat(text.data(), ":", ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) {
    return "";
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text.data(), text.size());
    return absl::StrCat(text.data(), ":", ntohs(v6.sin6_port));
  }
  ::inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  return absl::StrCat("[", text.data(), "]:", ntohs(v6.sin6_port));
}

bool IsLoopbackOrigin(absl::string_view origin) {
  return absl::StartsWith(origin, "127.") || origin == "::1";
}

}  // namespace

std::string ConnectionOfPeer(absl::string_view peer) {
  const size_t colon = peer.find(':');
  return absl::StrReplaceAll(peer.substr(colon == absl::string_view::npos ? 0 : colon + 1),
                             {{"%5B", "["}, {"%5D", "]"}});
}

std::string OriginOfConnection(absl::string_view connection) {
  const absl::string_view host = connection.substr(0, connection.rfind(':'));
  in6_addr v6{};
  std::string inner(host.size() > 2 && host.front() == '[' ? host.substr(1, host.size() - 2)
                                                           : host);
  if (inner == "::1" || ::inet_pton(AF_INET6, inner.c_str(), &v6) != 1) {
    return inner;
  }
  constexpr size_t kNetworkBytes = 8;
  std::fill(v6.s6_addr + kNetworkBytes, std::end(v6.s6_addr), uint8_t{0});
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET6, &v6, text.data(), text.size());
  return absl::StrCat(text.data(), "/64");
}

struct ConnectionGate::Impl {
  struct Connection {
    // The same socket as gRPC's, to see its end by and to end it with.
    UniqueFd watched;
    uint64_t number = 0;
    std::string origin;
    absl::Time since;  // accepted, or when its last call ended
    int calls = 0;     // open
    bool had_call = false;
  };

  Impl(UniqueFd listens, const Options& given, std::function<void(int fd)> takes, RefusalLog* notes)
      : options(given),
        hand_over(std::move(takes)),
        log(notes),
        listener(std::move(listens)),
        bell(::eventfd(0, EFD_CLOEXEC)),
        epoll(::epoll_create1(EPOLL_CLOEXEC)) {
    options.most = AsManyAs(given.most);
  }

  Options options;
  const std::function<void(int fd)> hand_over;
  RefusalLog* const log;
  UniqueFd listener;
  const UniqueFd bell;   // readable: the end
  const UniqueFd epoll;  // data: the number of a connection, or one of the two below
  static constexpr uint64_t kListener = 0;
  static constexpr uint64_t kBell = 1;
  uint64_t next_number = 2;

  Mutex mutex;
  std::map<std::string, Connection> connections ABSL_GUARDED_BY(mutex);
  std::map<uint64_t, std::string> names ABSL_GUARDED_BY(mutex);
  std::thread thread;

  bool Watch(int fd, uint64_t data, uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.u64 = data;
    return ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  }
  void Run();
  void Accept();
  // Whether one more from there may be; makes room for it where it can.
  bool Admit(const std::string& name, const std::string& origin);
  // Has the socket watched, and hands it over.
  void Enter(UniqueFd fd, const std::string& name, const std::string& origin);
  void Forget(uint64_t number);
  void Sweep();
  void Erase(std::map<std::string, Connection>::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    // Closing would not end the watch: gRPC has the socket open too.
    ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, it->second.watched.get(), nullptr);
    names.erase(it->second.number);
    connections.erase(it);
  }
  // The other side sees its end, and gRPC, which then closes it.
  void Cut(std::map<std::string, Connection>::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    ::shutdown(it->second.watched.get(), SHUT_RDWR);
    Erase(it);
  }
  void Refuse(const std::string& name, absl::string_view why) const {
    if (log != nullptr) {
      log->Add(absl::StrCat("a connection of ", name, ": ", why));
    }
  }
};

void ConnectionGate::Impl::Run() {
  std::array<epoll_event, kAcceptedAtOnce> events{};
  absl::Time swept = Clock::Real().Now();
  while (true) {
    const int count = ::epoll_wait(epoll.get(), events.data(), events.size(), kLookAgainMs);
    bool accept = false;
    for (int i = 0; i < count; ++i) {
      const uint64_t number = events[static_cast<size_t>(i)].data.u64;
      if (number == kBell) {
        return;
      }
      if (number == kListener) {
        accept = true;
      } else {
        Forget(number);
      }
    }
    if (accept) {  // when those that have ended are counted
      Accept();
    }
    if (Clock::Real().Now() - swept > absl::Milliseconds(kLookAgainMs)) {
      swept = Clock::Real().Now();
      Sweep();
    }
  }
}

void ConnectionGate::Impl::Accept() {
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    UniqueFd fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &size,
                          SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        // It stays ready, and asking again at once would spin.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      return;
    }
    const std::string name = NameOf(address);
    const std::string origin = OriginOfConnection(name);
    if (!Admit(name, origin)) {
      continue;
    }
    // As gRPC sets them where it accepts itself.
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &kUserTimeoutMs, sizeof(kUserTimeoutMs));
    Enter(std::move(fd), name, origin);
  }
}

bool ConnectionGate::Impl::Admit(const std::string& name, const std::string& origin) {
  MutexLock lock(&mutex);
  const int most = IsLoopbackOrigin(origin) ? options.most_of_loopback : options.most_of_one;
  const auto of_one =
      std::count_if(connections.begin(), connections.end(),
                    [&origin](const auto& entry) { return entry.second.origin == origin; });
  if (of_one >= most && most < options.most) {
    Refuse(name, absl::StrCat(of_one, " are open from ", origin, ", as many as may be"));
    return false;
  }
  if (std::ssize(connections) < options.most) {
    return true;
  }
  // The one that has come to nothing for longest makes place.
  auto oldest = connections.end();
  for (auto it = connections.begin(); it != connections.end(); ++it) {
    if (!it->second.had_call &&
        (oldest == connections.end() || it->second.since < oldest->second.since)) {
      oldest = it;
    }
  }
  if (oldest == connections.end()) {
    Refuse(name, absl::StrCat(connections.size(), " are open, as many as may be"));
    return false;
  }
  Refuse(oldest->first, absl::StrCat("it had brought no call when ", connections.size(),
                                     " were open, as many as may be"));
  Cut(oldest);
  return true;
}

void ConnectionGate::Impl::Enter(UniqueFd fd, const std::string& name, const std::string& origin) {
  const int given = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0);
  if (given < 0) {
    Refuse(name, "the process has no descriptor left");
    return;
  }
  {
    MutexLock lock(&mutex);
    // Of the same name is only one whose end has not been seen yet.
    if (const auto old = connections.find(name); old != connections.end()) {
      Erase(old);
    }
    Connection& connection = connections[name];
    connection.watched = std::move(fd);
    connection.number = next_number++;
    connection.origin = origin;
    connection.since = Clock::Real().Now();
    names[connection.number] = name;
    // Nothing but the end wakes it: EPOLLHUP and EPOLLERR come unasked. Cannot fail: the descriptor is
    // new, and there are far fewer than the system watches.
    Watch(connection.watched.get(), connection.number, 0);
  }
  hand_over(given);
}

void ConnectionGate::Impl::Forget(uint64_t number) {
  MutexLock lock(&mutex);
  const auto found = names.find(number);
  if (found != names.end()) {
    Erase(connections.find(found->second));
  }
}

void ConnectionGate::Impl::Sweep() {
  const absl::Time now = Clock::Real().Now();
  MutexLock lock(&mutex);
  for (auto it = connections.begin(); it != connections.end();) {
    const auto next = std::next(it);
    const Connection& connection = it->second;
    const absl::Duration limit =
        connection.had_call ? options.call_within : options.first_call_within;
    if (connection.calls == 0 && now - connection.since > limit) {
      Refuse(it->first, "it brought no whole call in time");
      Cut(it);
    }
    it = next;
  }
}

absl::StatusOr<std::unique_ptr<ConnectionGate>> ConnectionGate::Start(
    UniqueFd listener, const Options& options, std::function<void(int fd)> hand_over,
    RefusalLog* log) {
  auto impl = std::make_unique<Impl>(std::move(listener), options, std::move(hand_over), log);
  if (!impl->bell.valid() || !impl->epoll.valid() ||
      !impl->Watch(impl->bell.get(), Impl::kBell, EPOLLIN) ||
      !impl->Watch(impl->listener.get(), Impl::kListener, EPOLLIN)) {
    return ErrnoToStatus(errno, "make descriptors to wait with");
  }
  impl->thread = std::thread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<ConnectionGate>(new ConnectionGate(std::move(impl)));
}

ConnectionGate::ConnectionGate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

ConnectionGate::~ConnectionGate() { Close(); }

void ConnectionGate::Close() {
  if (!impl_->thread.joinable()) {
    return;
  }
  const uint64_t one = 1;
  // Cannot fail: the counter is far from its end.
  (void)!::write(impl_->bell.get(), &one, sizeof(one));
  impl_->thread.join();
  impl_->listener = UniqueFd();
}

void ConnectionGate::OnCall(const std::string& connection) {
  MutexLock lock(&impl_->mutex);
  if (const auto found = impl_->connections.find(connection); found != impl_->connections.end()) {
    found->second.had_call = true;
    ++found->second.calls;
  }
}

void ConnectionGate::OnCallEnd(const std::string& connection) {
  MutexLock lock(&impl_->mutex);
  if (const auto found = impl_->connections.find(connection); found != impl_->connections.end()) {
    --found->second.calls;
    found->second.since = Clock::Real().Now();
  }
}

int ConnectionGate::num_open() const {
  MutexLock lock(&impl_->mutex);
  return static_cast<int>(impl_->connections.size());
}

}  // namespace shoal

#include "expert_node/service/metrics_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "expert_node/service/listen_address.h"

namespace shoal {
namespace {

constexpr size_t kMostConnections = 16;
constexpr size_t kMostRequestBytes = 4096;
constexpr absl::Duration kTimeOfOne = absl::Seconds(2);

std::string Response(absl::string_view status, absl::string_view type, absl::string_view body,
                     bool with_body) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n",
                      with_body ? body : absl::string_view());
}

std::string Refusal(absl::string_view status, absl::string_view why) {
  return Response(status, "text/plain; charset=utf-8", absl::StrCat(why, "\n"), true);
}

// The answer to a whole request; only its first line matters.
std::string Answer(absl::string_view request, const std::function<std::string()>& collect) {
  const bool head = absl::StartsWith(request, "HEAD ");
  if (!head && !absl::StartsWith(request, "GET ")) {
    return Refusal("405 Method Not Allowed\r\nAllow: GET, HEAD", "only GET is answered");
  }
  request.remove_prefix(request.find(' ') + 1);
  const absl::string_view path = request.substr(0, request.find_first_of(" ?\r\n"));
  if (path != "/metrics") {
    return Refusal("404 Not Found", "only /metrics is here");
  }
  return Response("200 OK", "text/plain; version=0.0.4; charset=utf-8", collect(), !head);
}

struct Connection {
  UniqueFd fd;
  absl::Time deadline;
  std::string request = {};
  std::string answer = {};  // what is left to send
};

// Reads on, and has an answer once the request is whole. False where the peer is gone.
bool Read(Connection& connection, const std::function<std::string()>& collect) {
  char bytes[kMostRequestBytes];
  const ssize_t size = ::recv(connection.fd.get(), bytes, sizeof(bytes), 0);
  if (size <= 0) {
    return size < 0 && (errno == EAGAIN || errno == EINTR);
  }
  connection.request.append(bytes, static_cast<size_t>(size));
  if (absl::StrContains(connection.request, "\r\n\r\n") ||
      absl::StrContains(connection.request, "\n\n")) {
    connection.answer = Answer(connection.request, collect);
  } else if (connection.request.size() >= kMostRequestBytes) {
    connection.answer = Refusal("431 Request Header Fields Too Large", "the request is too long");
  }
  return true;
}

// Sends on. False where the peer is gone or has everything.
bool Write(Connection& connection) {
  const ssize_t size =
      ::send(connection.fd.get(), connection.answer.data(), connection.answer.size(), MSG_NOSIGNAL);
  if (size < 0) {
    return errno == EAGAIN || errno == EINTR;
  }
  connection.answer.erase(0, static_cast<size_t>(size));
  if (connection.answer.empty()) {
    // What the peer has sent beyond its request would turn a plain close into a reset that can
    // swallow the answer. A peer that sends more than this wants no answer.
    ::shutdown(connection.fd.get(), SHUT_WR);
    char rest[kMostRequestBytes];
    (void)!::recv(connection.fd.get(), rest, sizeof(rest), 0);
  }
  return !connection.answer.empty();
}

}  // namespace

struct MetricsServer::Impl {
  NetAddress address;
  std::function<std::string()> collect;
  UniqueFd listener;
  UniqueFd bell;  // readable: the end
  std::vector<Connection> connections = {};
  std::jthread thread = {};

  void Run();
  void Accept();
  void Handle(const std::vector<pollfd>& ready);
  int WaitMs() const;
};

void MetricsServer::Impl::Run() {
  while (true) {
    std::vector<pollfd> ready;
    ready.reserve(connections.size() + 2);
    ready.push_back({bell.get(), POLLIN, 0});
    const bool full = connections.size() >= kMostConnections;
    ready.push_back({listener.get(), static_cast<int16_t>(full ? 0 : POLLIN), 0});
    for (const Connection& connection : connections) {
      ready.push_back({connection.fd.get(),
                       static_cast<int16_t>(connection.answer.empty() ? POLLIN : POLLOUT), 0});
    }
    ::poll(ready.data(), ready.size(), WaitMs());
    if (ready[0].revents != 0) {
      return;
    }
    Handle(ready);
    if (ready[1].revents != 0) {
      Accept();
    }
  }
}

// Until the first connection's time is over.
int MetricsServer::Impl::WaitMs() const {
  if (connections.empty()) {
    return -1;
  }
  const auto first = std::min_element(
      connections.begin(), connections.end(),
      [](const Connection& a, const Connection& b) { return a.deadline < b.deadline; });
  const absl::Duration left = absl::Ceil(first->deadline - absl::Now(), absl::Milliseconds(1));
  return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left)));
}

void MetricsServer::Impl::Accept() {
  UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) {
    connections.push_back({std::move(fd), absl::Now() + kTimeOfOne});
  } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    // It stays ready, and asking again at once would spin.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// ready[i + 2] is of connections[i].
void MetricsServer::Impl::Handle(const std::vector<pollfd>& ready) {
  const absl::Time now = absl::Now();
  std::vector<Connection> left;
  left.reserve(kMostConnections);
  for (size_t i = 0; i < connections.size(); ++i) {
    Connection& connection = connections[i];
    bool goes_on = now < connection.deadline;
    if (goes_on && ready[i + 2].revents != 0) {
      goes_on = connection.answer.empty() ? Read(connection, collect) : Write(connection);
    }
    if (goes_on) {
      left.push_back(std::move(connection));
    }
  }
  connections = std::move(left);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    NetAddress address, std::function<std::string()> collect) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(address));
  UniqueFd bell(::eventfd(0, EFD_CLOEXEC));
  if (!bell.valid()) {
    return ErrnoToStatus(errno, "make a descriptor to wait with");
  }
  auto impl = std::make_unique<Impl>(
      Impl{std::move(address), std::move(collect), std::move(listener), std::move(bell)});
  impl->thread = std::jthread([raw = impl.get()] { raw->Run(); });
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(impl)));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MetricsServer::~MetricsServer() {
  const uint64_t one = 1;
  // Cannot fail: the counter is far from its end.
  (void)!::write(impl_->bell.get(), &one, sizeof(one));
  impl_->thread.join();
}

const NetAddress& MetricsServer::address() const { return impl_->address; }

}  // namespace shoal

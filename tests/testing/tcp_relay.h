// A network between two programs of this machine that can lose a connection without a word.
#ifndef SHOAL_TESTS_TESTING_TCP_RELAY_H_
#define SHOAL_TESTS_TESTING_TCP_RELAY_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/unique_fd.h"

namespace shoal::testing {

// Listens on loopback and passes on what comes to a port of this machine, and back.
class TcpRelay {
 public:
  explicit TcpRelay(int target_port) : target_port_(target_port), listener_(NewSocket()) {
    sockaddr_in any = Loopback(0);
    socklen_t size = sizeof(any);
    EXPECT_EQ(::bind(listener_.get(), Raw(any), size), 0);
    EXPECT_EQ(::listen(listener_.get(), SOMAXCONN), 0);
    EXPECT_EQ(::getsockname(listener_.get(), Raw(any), &size), 0);
    port_ = ntohs(any.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~TcpRelay() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (const UniqueFd& end : ends_) {
      ::shutdown(end.get(), SHUT_RDWR);
    }
    for (std::thread& pump : pumps_) {
      pump.join();
    }
  }
  TcpRelay(const TcpRelay&) = delete;
  TcpRelay& operator=(const TcpRelay&) = delete;

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  // The connections that there are pass nothing on any more, and stay open. New ones are served.
  void ForgetConnections() { ++generation_; }

 private:
  static UniqueFd NewSocket() { return UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
  static sockaddr_in Loopback(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static sockaddr* Raw(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

  void Accept() {
    while (true) {
      UniqueFd near(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!near.valid()) {
        return;
      }
      UniqueFd far = NewSocket();
      sockaddr_in target = Loopback(target_port_);
      if (::connect(far.get(), Raw(target), sizeof(target)) != 0) {
        continue;
      }
      const int generation = generation_;
      for (const auto& [from, to] : {std::pair(near.get(), far.get()), {far.get(), near.get()}}) {
        pumps_.emplace_back(
            [this, generation, from = from, to = to] { Pump(generation, from, to); });
      }
      ends_.push_back(std::move(near));
      ends_.push_back(std::move(far));
    }
  }

  void Pump(int generation, int from, int to) {
    std::array<char, 4096> bytes = {};
    ssize_t count = 0;
    while ((count = ::read(from, bytes.data(), bytes.size())) > 0) {
      for (ssize_t done = 0; done < count && generation == generation_;) {
        const ssize_t written =
            ::send(to, bytes.data() + done, static_cast<size_t>(count - done), MSG_NOSIGNAL);
        if (written <= 0) {
          return;
        }
        done += written;
      }
    }
    if (generation == generation_) {
      ::shutdown(to, SHUT_WR);
    }
  }

  const int target_port_;
  const UniqueFd listener_;
  int port_ = 0;
  std::atomic<int> generation_{0};
  // The acceptor's until it has ended.
  std::vector<UniqueFd> ends_;
  std::vector<std::thread> pumps_;
  std::thread acceptor_;
};

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_TESTING_TCP_RELAY_H_

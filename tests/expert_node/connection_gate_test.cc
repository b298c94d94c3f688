#include "expert_node/service/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "expert_node/service/listen_address.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{20};  // so that a test that would hang fails

class ConnectionGateTest : public ::testing::Test {
 protected:
  void Open(const ConnectionGate::Options& options) {
    SHOAL_ASSERT_OK_AND_ASSIGN(UniqueFd listener, ListenOn(address_));
    const auto take = [this](int fd) {
      const std::lock_guard<std::mutex> lock(mutex_);
      taken_.emplace_back(fd);
      changed_.notify_all();
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(gate_,
                               ConnectionGate::Start(std::move(listener), options, take, &log_));
  }
  // A client's end.
  UniqueFd Connect() {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(address_.port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    return fd;
  }
  // A client's end of one that is let in.
  UniqueFd LetIn() {
    UniqueFd fd = Connect();
    const size_t wanted = num_let_in_ + 1;
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return taken_.size() >= wanted; }));
    num_let_in_ = wanted;
    return fd;
  }
  static std::string NameOf(const UniqueFd& client) {
    sockaddr_in name{};
    socklen_t size = sizeof(name);
    ::getsockname(client.get(), reinterpret_cast<sockaddr*>(&name), &size);
    return absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
  }
  // Whether the other end closes it.
  static bool IsClosed(const UniqueFd& client) {
    pollfd ready{client.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1 &&
           ::recv(client.get(), &byte, 1, 0) <= 0;
  }
  static bool IsOpenNow(const UniqueFd& client) {
    pollfd ready{client.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) == 0;
  }
  std::string Log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

  NetAddress address_ = {"127.0.0.1", 0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<UniqueFd> taken_;  // the server's ends, in their order
  size_t num_let_in_ = 0;
  std::string lines_;
  RefusalLog log_{[this](absl::string_view line) {
                    const std::lock_guard<std::mutex> lock(mutex_);
                    absl::StrAppend(&lines_, line, "\n");
                  },
                  60, Clock::Real()};
  std::unique_ptr<ConnectionGate> gate_;
};

TEST(ConnectionNamesTest, AreReadFromGrpcs) {
  EXPECT_EQ(ConnectionOfPeer("ipv4:1.2.3.4:5"), "1.2.3.4:5");
  EXPECT_EQ(ConnectionOfPeer("ipv6:%5B2001:db8::1%5D:5"), "[2001:db8::1]:5");
  EXPECT_EQ(OriginOfConnection("1.2.3.4:5"), "1.2.3.4");
  EXPECT_EQ(OriginOfConnection("[::1]:5"), "::1");
  EXPECT_EQ(OriginOfConnection("[2001:db8:1:2:3:4:5:6]:7"), "2001:db8:1:2::/64");
}

TEST_F(ConnectionGateTest, HandsOverWhatComes) {
  Open({});
  const UniqueFd client = LetIn();
  ASSERT_EQ(::send(client.get(), "x", 1, 0), 1);
  pollfd ready{taken_[0].get(), POLLIN, 0};
  ASSERT_EQ(::poll(&ready, 1, 20'000), 1);
  char byte = 0;
  EXPECT_EQ(::recv(taken_[0].get(), &byte, 1, 0), 1);
  EXPECT_EQ(byte, 'x');
  EXPECT_EQ(gate_->num_open(), 1);
}

TEST_F(ConnectionGateTest, OneTooManyFromOneOriginIsClosed) {
  Open({.most_of_loopback = 2});
  const UniqueFd first = LetIn();
  const UniqueFd second = LetIn();
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_THAT(Log(), HasSubstr("2 are open from 127.0.0.1"));
  EXPECT_TRUE(IsOpenNow(first) && IsOpenNow(second));
}

TEST_F(ConnectionGateTest, TheOldestThatBroughtNoCallMakesPlace) {
  Open({.most = 16});
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(LetIn());
  }
  gate_->OnCall(NameOf(clients[0]));
  const UniqueFd one_more = LetIn();
  EXPECT_TRUE(IsClosed(clients[1]));
  EXPECT_TRUE(IsOpenNow(clients[0]) && IsOpenNow(clients[2]) && IsOpenNow(one_more));
  EXPECT_EQ(gate_->num_open(), 16);
}

TEST_F(ConnectionGateTest, WhereAllBroughtCallsTheNewOneIsClosed) {
  Open({.most = 16});
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 16; ++i) {
    clients.push_back(LetIn());
    gate_->OnCall(NameOf(clients.back()));
  }
  EXPECT_TRUE(IsClosed(Connect()));
  EXPECT_THAT(Log(), HasSubstr("16 are open, as many as may be"));
  for (const UniqueFd& client : clients) {
    EXPECT_TRUE(IsOpenNow(client));
  }
}

TEST_F(ConnectionGateTest, WhatTheServerClosesMakesPlace) {
  Open({.most_of_loopback = 1});
  const UniqueFd first = LetIn();
  ::shutdown(taken_[0].get(), SHUT_RDWR);  // as gRPC does
  EXPECT_TRUE(IsClosed(first));
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (gate_->num_open() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // between two looks
  }
  LetIn();
}

TEST_F(ConnectionGateTest, WithoutACallInTimeItIsClosed) {
  Open({.first_call_within = absl::Milliseconds(100), .call_within = absl::Milliseconds(200)});
  const UniqueFd busy = LetIn();
  gate_->OnCall(NameOf(busy));
  const UniqueFd done = LetIn();
  gate_->OnCall(NameOf(done));
  gate_->OnCallEnd(NameOf(done));
  const UniqueFd mute = LetIn();
  EXPECT_TRUE(IsClosed(mute));
  EXPECT_TRUE(IsClosed(done));
  EXPECT_TRUE(IsOpenNow(busy));
  EXPECT_THAT(Log(), HasSubstr(absl::StrCat(NameOf(mute), ": it brought no whole call in time")));
}

TEST_F(ConnectionGateTest, ClosedItFreesThePort) {
  Open({});
  const UniqueFd client = LetIn();
  gate_->Close();
  SHOAL_EXPECT_OK(CheckCanListen(address_));
  EXPECT_TRUE(IsOpenNow(client));
}

}  // namespace
}  // namespace shoal

#include "expert_node/service/metrics_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/io/unique_fd.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

const NetAddress kAnyPort = {"127.0.0.1", 0};

std::unique_ptr<MetricsServer> StartServer() {
  absl::StatusOr<std::unique_ptr<MetricsServer>> server =
      MetricsServer::Start(kAnyPort, [] { return std::string("shoal_something 1\n"); });
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

UniqueFd Connect(const MetricsServer& server) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(server.address().port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

void Send(const UniqueFd& fd, absl::string_view text) {
  EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
}

// Until the server closes.
std::string ReadAll(const UniqueFd& fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t size = 0; (size = ::recv(fd.get(), bytes, sizeof(bytes), 0)) > 0;) {
    text.append(bytes, static_cast<size_t>(size));
  }
  return text;
}

std::string Ask(const MetricsServer& server, absl::string_view request) {
  const UniqueFd fd = Connect(server);
  Send(fd, request);
  return ReadAll(fd);
}

TEST(MetricsServerTest, AnswersGetMetrics) {
  const std::unique_ptr<MetricsServer> server = StartServer();
  EXPECT_EQ(Ask(*server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 18\r\nConnection: close\r\n\r\nshoal_something 1\n");
  EXPECT_TRUE(absl::EndsWith(Ask(*server, "GET /metrics?x=1 HTTP/1.0\n\n"), "shoal_something 1\n"));
}

TEST(MetricsServerTest, AHeadHasNoBody) {
  const std::unique_ptr<MetricsServer> server = StartServer();
  const std::string answer = Ask(*server, "HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(absl::StrContains(answer, "Content-Length: 18\r\n"));
  EXPECT_TRUE(absl::EndsWith(answer, "\r\n\r\n"));
}

TEST(MetricsServerTest, RefusesEverythingElse) {
  const std::unique_ptr<MetricsServer> server = StartServer();
  const auto starts = [&](absl::string_view request) {
    return Ask(*server, request).substr(0, 12);
  };
  EXPECT_EQ(starts("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(starts("GET /metrics/.. HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(starts("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
  EXPECT_EQ(starts(absl::StrCat(std::string(1000, '\0'), "\r\n\r\n")), "HTTP/1.1 405");
  EXPECT_EQ(starts(absl::StrCat("GET /metrics HTTP/1.1\r\nX: ", std::string(4096, 'x'))),
            "HTTP/1.1 431");
}

TEST(MetricsServerTest, SilentPeersAreLeftAndHoldUpNobodyForLong) {
  const std::unique_ptr<MetricsServer> server = StartServer();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 17; ++i) {
    silent.push_back(Connect(*server));
    Send(silent.back(), "GET /metr");
  }
  EXPECT_TRUE(absl::EndsWith(Ask(*server, "GET /metrics HTTP/1.1\r\n\r\n"), "shoal_something 1\n"));
  for (const UniqueFd& fd : silent) {
    EXPECT_EQ(ReadAll(fd), "");
  }
}

TEST(MetricsServerTest, EndsWhileAPeerIsSilent) {
  std::unique_ptr<MetricsServer> server = StartServer();
  const UniqueFd silent = Connect(*server);
  server.reset();
  EXPECT_EQ(ReadAll(silent), "");
}

TEST(MetricsServerTest, TwoDoNotListenOnOnePort) {
  const std::unique_ptr<MetricsServer> server = StartServer();
  EXPECT_THAT(MetricsServer::Start(server->address(), [] { return std::string(); }).status(),
              testing::StatusIs(absl::StatusCode::kAlreadyExists, ::testing::HasSubstr("in use")));
}

}  // namespace
}  // namespace shoal

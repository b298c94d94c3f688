#include "common/sync/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/unique_fd.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

// A manager's socket; what it got, or "" where nothing came.
class Manager {
 public:
  explicit Manager(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path, path.data(), path.size());
    if (path[0] == '@') {
      name.sun_path[0] = '\0';
    }
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name),
                     static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size())),
              0);
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  }
  ~Manager() { ::unsetenv("NOTIFY_SOCKET"); }

  std::string Heard() {
    char bytes[256];
    const ssize_t size = ::recv(fd_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    return size < 0 ? "" : std::string(bytes, static_cast<size_t>(size));
  }

 private:
  UniqueFd fd_;
};

TEST(ServiceManagerTest, IsToldThroughASocketInTheFileSystem) {
  const testing::TempDir dir;
  Manager manager(absl::StrCat(dir.path(), "/notify"));
  TellServiceManager("READY=1\nSTATUS=serving");
  EXPECT_EQ(manager.Heard(), "READY=1\nSTATUS=serving");
}

TEST(ServiceManagerTest, IsToldThroughAnAbstractSocket) {
  Manager manager(absl::StrCat("@shoal-service-manager-test-", ::getpid()));
  TellServiceManager("STOPPING=1");
  EXPECT_EQ(manager.Heard(), "STOPPING=1");
}

TEST(ServiceManagerTest, NobodyIsNoError) {
  TellServiceManager("READY=1");
  for (const std::string& path : {std::string("/does/not/exist"), std::string("relative"),
                                  std::string(), std::string(200, '/')}) {
    ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
    TellServiceManager("READY=1");
  }
  ::unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace shoal

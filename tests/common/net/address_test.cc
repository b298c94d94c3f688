// HOST:PORT as people write it, and which of them stay on this machine.
#include "common/net/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

TEST(NetAddressTest, ReadsNamesAndBothKindsOfNumbers) {
  for (const char* text : {"192.168.1.7:7101", "pi.local:80", "[fe80::1]:7101", "localhost:0"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const NetAddress address, ParseNetAddress(text));
    EXPECT_EQ(address.ToString(), text);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const NetAddress address, ParseNetAddress("[fe80::1]:7101"));
  EXPECT_EQ(address.host, "fe80::1");
  EXPECT_EQ(address.port, 7101);
}

TEST(NetAddressTest, RefusesWhatIsNoneAndQuotesIt) {
  for (const char* text :
       {"", "host", ":7101", "host:", "host:x", "host:-1", "host:65536", "host: 7", "::1:7101",
        "[::1:7101", "[host]:7101", "a b:1", "a,b:1", "http://host:1", "host:+5"}) {
    EXPECT_THAT(ParseNetAddress(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("write HOST:PORT")))
        << text;
  }
}

TEST(NetAddressTest, KnowsTheAddressesOfThisMachineAlone) {
  for (const char* text : {"localhost:1", "127.0.0.1:1", "127.9.8.7:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLoopback(*ParseNetAddress(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "localhost.example:1"}) {
    EXPECT_FALSE(IsLoopback(*ParseNetAddress(text))) << text;
  }
}

}  // namespace
}  // namespace shoal

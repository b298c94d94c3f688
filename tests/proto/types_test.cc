#include <gtest/gtest.h>

#include <string>

#include "common/version.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

TEST(ProtocolTest, PackageIsTheProtocolThatTheProgramsName) {
  EXPECT_EQ(v1::UnitRange::descriptor()->file()->package(), kProtocol);
}

TEST(ProtocolTest, FieldNumbersAreThoseOnTheWire) {
  // By the encoding rules of Protocol Buffers: field 1 varint 3, field 2 varint 5.
  v1::UnitRange range;
  range.set_begin(3);
  range.set_end(5);
  EXPECT_EQ(range.SerializeAsString(), std::string("\x08\x03\x10\x05"));
  v1::ContainerIdentity identity;
  identity.set_container_version(1);
  identity.set_identity("ab");
  EXPECT_EQ(identity.SerializeAsString(), std::string("\x08\x01\x12\x02"
                                                      "ab"));
}

}  // namespace
}  // namespace shoal

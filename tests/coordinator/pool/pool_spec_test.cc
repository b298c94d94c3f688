// The file that says what the machines of a pool can do: what is missing or wrong is named.
#include "coordinator/pool/pool_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using Json = nlohmann::json;
using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

Json Spec() {
  return Json::parse(R"({"format": "shoal-pool-spec", "version": 1, "nodes": [
    {"name": "attic", "address": "10.0.0.2:7071", "read_bytes_per_second": 3e9,
     "compute_bytes_per_second": 8000000000, "link_bytes_per_second": 1.25e8, "round_trip_ms": 0.2,
     "free_disk_bytes": 500000000000, "cache_bytes": 1000},
    {"name": "cellar", "read_bytes_per_second": 1, "compute_bytes_per_second": 2,
     "link_bytes_per_second": 3, "round_trip_ms": 0, "free_disk_bytes": 0}]})");
}

absl::Status Parse(const std::function<void(Json&)>& change) {
  Json json = Spec();
  change(json);
  return ParsePoolSpec(json.dump(), "spec.json").status();
}

TEST(PoolSpecTest, EveryFieldIsRead) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<NodeRates> nodes,
                             ParsePoolSpec(Spec().dump(), "spec.json"));
  ASSERT_EQ(nodes.size(), 2);
  EXPECT_EQ(nodes[0].name, "attic");
  EXPECT_EQ(nodes[0].address, "10.0.0.2:7071");
  EXPECT_EQ(nodes[0].read_bytes_per_second, 3e9);
  EXPECT_EQ(nodes[0].compute_bytes_per_second, 8e9);
  EXPECT_EQ(nodes[0].link_bytes_per_second, 1.25e8);
  EXPECT_EQ(nodes[0].round_trip, absl::Microseconds(200));
  EXPECT_EQ(nodes[0].free_disk_bytes, 500'000'000'000);
  EXPECT_EQ(nodes[0].cache_bytes, 1000);
  EXPECT_EQ(nodes[1].address, "");
  EXPECT_EQ(nodes[1].cache_bytes, 0);
}

TEST(PoolSpecTest, AFieldThatIsAbsentIsNamedWithItsNode) {
  for (const char* field : {"read_bytes_per_second", "compute_bytes_per_second",
                            "link_bytes_per_second", "round_trip_ms", "free_disk_bytes"}) {
    EXPECT_THAT(Parse([field](Json& json) { json["nodes"][1].erase(field); }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("spec.json"), HasSubstr("cellar"), HasSubstr(field))));
  }
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0].erase("name"); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
}

TEST(PoolSpecTest, WhatIsWrongIsNamed) {
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(Parse([](Json& json) { json["format"] = "shoal-pool-plan"; }), invalid("format"));
  EXPECT_THAT(Parse([](Json& json) { json["version"] = 2; }),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("2")));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"] = Json::array(); }), invalid("nodes"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"] = Json::array_t(65, json["nodes"][0]); }),
              invalid("65 entries"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0] = 5; }), invalid("nodes"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["cache_byte"] = 5; }),
              invalid("\"cache_byte\" is no field here"));
  EXPECT_THAT(Parse([](Json& json) { json["node"] = 5; }), invalid("\"node\" is no field here"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["name"] = "../x"; }), invalid("name"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["address"] = "attic"; }), invalid("address"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["read_bytes_per_second"] = 0; }),
              invalid("read_bytes_per_second"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["read_bytes_per_second"] = "3 GB/s"; }),
              invalid("read_bytes_per_second"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["round_trip_ms"] = -1; }),
              invalid("round_trip_ms"));
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["free_disk_bytes"] = 1.5; }),
              invalid("free_disk_bytes"));
  EXPECT_THAT(ParsePoolSpec("[]", "spec.json").status(), invalid("spec.json"));
}

}  // namespace
}  // namespace shoal

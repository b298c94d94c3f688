// The plan of a pool: what is written is read again, and every contradiction is named.
#include "coordinator/pool/pool_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using Json = nlohmann::json;
using ::shoal::testing::SmallPlan;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kIdentity(64, 'a');

// A manifest of a model with 14 experts of 3 units, of which a plan looks at no more.
Manifest SmallManifest() {
  Manifest manifest;
  manifest.identity = kIdentity;
  manifest.unit_layout.num_units = 3;
  manifest.config.moe.num_experts = 14;
  manifest.banks.resize(2);
  return manifest;
}

absl::Status Parse(const std::function<void(Json&)>& change) {
  Json json = Json::parse(SerializePlan(SmallPlan(kIdentity)));
  change(json);
  return ParsePlan(json.dump(), "pool.json").status();
}

absl::Status Check(const std::function<void(PoolPlan&)>& change) {
  PoolPlan plan = SmallPlan(kIdentity);
  change(plan);
  return CheckPlan(plan, SmallManifest());
}

TEST(PoolPlanTest, WhatIsWrittenIsReadAgain) {
  const TempDir dir;
  PoolPlan plan = SmallPlan(kIdentity);
  plan.epoch = 7;
  plan.nodes[1].address = "[fe80::1%eth0]:65535";
  SHOAL_ASSERT_OK(WritePlan(plan, dir / "pool.json"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolPlan again, ReadPlan(dir / "pool.json"));
  EXPECT_EQ(again.identity, kIdentity);
  EXPECT_EQ(again.epoch, 7);
  ASSERT_EQ(again.nodes.size(), 2);
  EXPECT_EQ(again.nodes[0].name, "alpha");
  EXPECT_EQ(again.nodes[0].address, "127.0.0.1:7001");
  EXPECT_EQ(again.nodes[1].address, "[fe80::1%eth0]:65535");
  EXPECT_EQ(again.nodes[0].slices, plan.nodes[0].slices);
  EXPECT_EQ(again.nodes[1].copies, plan.nodes[1].copies);
  EXPECT_EQ(again.nodes[1].stored(),
            (std::vector<ExpertSlice>{{{2, 3}, {0, 9}}, {{0, 1}, {0, 9}}}));
  SHOAL_EXPECT_OK(CheckPlan(again, SmallManifest()));
}

// Files hold epochs up to 2^63 - 1.
TEST(PoolPlanTest, TheLargestEpochHasNoNext) {
  PoolPlan plan;
  plan.epoch = 9223372036854775806U;
  ASSERT_TRUE(NextEpoch(plan).ok());
  EXPECT_EQ(*NextEpoch(plan), 9223372036854775807U);
  plan.epoch = 9223372036854775807U;
  EXPECT_THAT(NextEpoch(plan).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("9223372036854775807")));
}

TEST(PoolPlanTest, AddressAndCopiesMayBeLeftOut) {
  SHOAL_EXPECT_OK(Parse([](Json& json) {
    for (Json& node : json["nodes"]) {
      node.erase("address");
      node.erase("copies");
    }
  }));
}

TEST(PoolPlanTest, TheCoordinatorMayComputeButHasNoCopies) {
  const auto coordinator = [](Json& json) { json["nodes"][1]["address"] = "coordinator"; };
  EXPECT_THAT(Parse(coordinator), StatusIs(absl::StatusCode::kInvalidArgument,
                                           AllOf(HasSubstr("beta"), HasSubstr("copies"))));
  Json json = Json::parse(SerializePlan(SmallPlan(kIdentity)));
  coordinator(json);
  json["nodes"][1].erase("copies");
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolPlan plan, ParsePlan(json.dump(), "pool.json"));
  ASSERT_NE(plan.coordinator(), nullptr);
  EXPECT_EQ(plan.coordinator()->name, "beta");
  ASSERT_EQ(plan.remote().size(), 1);
  EXPECT_EQ(plan.remote()[0].name, "alpha");
  json["nodes"][0]["address"] = "coordinator";
  EXPECT_THAT(ParsePlan(json.dump(), "pool.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another node's too")));
}

TEST(PoolPlanTest, RefusesAnotherVersionByNumber) {
  EXPECT_THAT(Parse([](Json& json) { json["version"] = 2; }),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("pool.json: version 2"), HasSubstr("reads version 1"))));
}

TEST(PoolPlanTest, NamesTheFieldThatIsMalformed) {
  const auto refuses = [](const std::function<void(Json&)>& change, const std::string& message) {
    EXPECT_THAT(Parse(change), StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("pool.json"), HasSubstr(message))));
  };
  refuses([](Json& json) { json["format"] = "shoal-partition"; }, "format");
  refuses([](Json& json) { json["identity"] = "abc"; }, "identity");
  refuses([](Json& json) { json["copys"] = 2; }, "\"copys\" is no field here");
  refuses([](Json& json) { json["nodes"][0]["copys"] = Json::array(); },
          "\"copys\" is no field here; those are name, address, slices, copies");
  refuses([](Json& json) { json["epoch"] = 0; }, "epoch");
  refuses([](Json& json) { json["epoch"] = -1; }, "epoch");
  refuses([](Json& json) { json.erase("nodes"); }, "nodes");
  refuses([](Json& json) { json["nodes"] = Json::array(); }, "0 nodes");
  refuses([](Json& json) { json["nodes"][0] = 3; }, "name");
  refuses([](Json& json) { json["nodes"][0].erase("slices"); }, "slices");
  refuses([](Json& json) { json["nodes"][0]["slices"][0]["units"] = {2, 2}; }, "units");
  refuses([](Json& json) { json["nodes"][0]["slices"][0]["units"] = {-1, 2}; }, "units");
  refuses([](Json& json) { json["nodes"][0]["slices"][0]["units"] = {0, 1, 2}; }, "units");
  refuses([](Json& json) { json["nodes"][0]["slices"][0]["experts"] = {0, 1U << 31}; }, "experts");
  refuses([](Json& json) { json["nodes"][0]["slices"][0]["experts"] = {0.0, 2.5}; }, "experts");
  refuses([](Json& json) { json["nodes"][1]["copies"] = "all"; }, "copies");
  refuses([](Json& json) { json["nodes"][0]["slices"] = Json::array(); }, "node alpha");
  refuses([](Json& json) { json["nodes"][1]["slices"] = Json(257, json["nodes"][0]["slices"][0]); },
          "257 entries");
  refuses([](Json& json) { json["nodes"] = Json(257, json["nodes"][0]); }, "alpha");
}

TEST(PoolPlanTest, NamesAreNamesOfDirectoriesAndUnique) {
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string(".."), std::string(".hidden"),
        std::string("a b"), std::string("\xc3\xa4"), std::string("alpha.partial"),
        std::string(64, 'n')}) {
    EXPECT_THAT(Parse([&](Json& json) { json["nodes"][0]["name"] = bad; }),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no name")))
        << bad;
  }
  for (const std::string& good : {std::string("A.b-c_9"), std::string(63, 'n')}) {
    SHOAL_EXPECT_OK(Parse([&](Json& json) { json["nodes"][0]["name"] = good; }));
  }
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["name"] = "beta"; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("node beta: two nodes have this name")));
}

TEST(PoolPlanTest, AddressesAreHostAndPortAndUnique) {
  for (const char* bad :
       {"host", "host:", ":7000", "host:0", "host:65536", "host:+70", "ho st:7000", "fe80::1:7000",
        "[fe80::1]", "[]:7000", "host:70x", "http://host:7000"}) {
    EXPECT_THAT(Parse([&](Json& json) { json["nodes"][0]["address"] = bad; }),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("node alpha"), HasSubstr("is not host:port"))))
        << bad;
  }
  EXPECT_THAT(Parse([](Json& json) { json["nodes"][0]["address"] = "127.0.0.1:7002"; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("127.0.0.1:7002 is another node's too")));
}

TEST(PoolPlanTest, IsForOneContainer) {
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.identity = std::string(64, 'b'); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("bbbbbbbbbbbbbbbb..."), HasSubstr("aaaaaaaaaaaaaaaa..."))));
  Manifest dense = SmallManifest();
  dense.banks.clear();
  EXPECT_THAT(CheckPlan(SmallPlan(kIdentity), dense),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no experts")));
}

TEST(PoolPlanTest, EveryUnitHasExactlyOneNodeThatComputesIt) {
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.nodes[0].slices[1].experts.end = 13; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("units 0-2 of experts 13-13 are computed by no node")));
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.nodes[0].slices[0].units.end = 1; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("units 1-1 of experts 0-8 are computed by no node")));
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.nodes[0].slices[0].units.end = 3; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("nodes alpha and beta both compute"),
                             HasSubstr("units 2-2 of experts 0-8"))));
  // A copy is none that computes.
  EXPECT_THAT(Check([](PoolPlan& plan) { std::swap(plan.nodes[1].slices, plan.nodes[1].copies); }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("both compute")));
}

TEST(PoolPlanTest, WhatANodeStoresIsInsideTheModelAndDisjoint) {
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.nodes[1].copies[0].experts.end = 15; }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("node beta"), HasSubstr("not a part of units 0-2"))));
  EXPECT_THAT(Check([](PoolPlan& plan) {
                plan.nodes[1].copies[0].units = {1, 3};
              }),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("node beta"),
                             HasSubstr("units 2-2 of experts 0-8 are given twice"))));
}

TEST(PoolPlanTest, APlanThatWasPutTogetherIsCheckedLikeOneThatWasRead) {
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.nodes[1].name = "alpha"; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two nodes")));
  EXPECT_THAT(Check([](PoolPlan& plan) { plan.epoch = 0; }),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("epoch is 0")));
}

TEST(PoolPlanTest, NamesTheFileThatIsNotThere) {
  EXPECT_THAT(ReadPlan("/nowhere/pool.json"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/pool.json")));
}

}  // namespace
}  // namespace shoal

// What a node may copy from others, by a coordinator's word.
#include "expert_node/service/fetch_grant.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/container/container.h"
#include "common/tls/pool_authority.h"
#include "expert_node/service/node_client.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "expert_node/service/units_server.h"
#include "shoal/v1/expert_node.pb.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::MakeSmallContainer;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;

constexpr ExpertSlice kGranted{{0, 2}, {0, 14}};
constexpr ExpertSlice kInside{{1, 2}, {3, 5}};
constexpr ExpertSlice kBeyond{{1, 3}, {3, 5}};
constexpr uint64_t kMessageBytes = uint64_t{1} << 20;

class FetchGrantTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK(InitPool(dir_ / "pool", "home", "desk", absl::Now()));
    SHOAL_ASSERT_OK_AND_ASSIGN(authority_, PoolAuthority::Open(dir_ / "pool"));
    for (const char* name : {"attic", "cellar"}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(
          const Identity identity,
          authority_->IssueIdentity(TlsRole::kNode, name, ValidFor(absl::Now(), absl::Hours(1)),
                                    absl::Now()));
      SHOAL_ASSERT_OK(StoreIdentity(dir_ / name, identity));
    }
    desk_ = Load("pool/coordinator");
    attic_ = Load("attic");
    cellar_ = Load("cellar");
  }
  SecurityPtr Load(const std::string& directory) {
    auto own = TransportSecurity::Load(dir_ / directory, {TlsRole::kCoordinator, TlsRole::kNode},
                                       Clock::Real());
    EXPECT_THAT(own, IsOk());
    return own.ok() ? *own : nullptr;
  }
  static std::string Grant(const SecurityPtr& signer, const std::string& node = "attic",
                           absl::Duration valid = absl::Minutes(1)) {
    absl::StatusOr<std::string> grant =
        MakeFetchGrant(*signer, node, "model", {&kGranted, 1}, absl::Now() + valid);
    EXPECT_THAT(grant, IsOk());
    return grant.value_or("");
  }
  // As cellar, who lends, sees attic.
  absl::Status May(absl::string_view grant, const ExpertSlice& slice = kInside,
                   const std::string& model = "model") const {
    return CheckMayFetch(*cellar_, attic_->identity().certificate_pem, grant, model, slice,
                         absl::Now());
  }

  const TempDir dir_;
  std::unique_ptr<PoolAuthority> authority_;
  SecurityPtr desk_;
  SecurityPtr attic_;
  SecurityPtr cellar_;
};

auto Denied(const std::string& why) {
  return StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(why));
}

TEST_F(FetchGrantTest, CoversItsSlicesForItsNodeAndNothingElse) {
  SHOAL_EXPECT_OK(May(Grant(desk_)));
  SHOAL_EXPECT_OK(May(Grant(desk_), kGranted));
  EXPECT_THAT(May(Grant(desk_), kBeyond), Denied("other slices"));
  EXPECT_THAT(May(Grant(desk_), kInside, "another model"), Denied("another container"));
  EXPECT_THAT(May(Grant(desk_, "cellar")), Denied("not for node attic"));
  EXPECT_THAT(May(Grant(desk_, "attic", -absl::Seconds(2))), Denied("expired"));
  EXPECT_THAT(May(""), Denied("no grant"));
  EXPECT_THAT(May("garbage"), Denied("these units"));
}

TEST_F(FetchGrantTest, IsACoordinatorsToGive) {
  EXPECT_THAT(May(Grant(attic_)), Denied("node attic signed the grant"));
  v1::FetchGrant grant;
  ASSERT_TRUE(grant.ParseFromString(Grant(desk_)));
  v1::FetchGrantContent content;
  ASSERT_TRUE(content.ParseFromString(grant.content()));
  ToMessage(testing::kSmallWhole, content.add_slices());
  grant.set_content(content.SerializeAsString());
  EXPECT_THAT(May(grant.SerializeAsString(), kBeyond), Denied("not what its coordinator signed"));
  // Signed by a node under the coordinator's certificate.
  ASSERT_TRUE(grant.ParseFromString(Grant(attic_)));
  grant.set_certificate(desk_->identity().certificate_pem);
  EXPECT_THAT(May(grant.SerializeAsString()), Denied("not what its coordinator signed"));
}

TEST_F(FetchGrantTest, OfARevokedCoordinatorIsWorthless) {
  SHOAL_ASSERT_OK(authority_->Revoke("desk", absl::Now()).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string list,
                             ReadSecretFile(dir_ / "pool/authority/revoked.pem"));
  SHOAL_ASSERT_OK(cellar_->revoked().Replace(list));
  EXPECT_THAT(May(Grant(desk_)), Denied("coordinator desk is revoked"));
}

TEST_F(FetchGrantTest, IsAskedForByWhoLends) {
  MakeSmallContainer(dir_.path(), ExpertCodec::kRvq3);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "model"));
  UnitsService::Options options;
  options.own = desk_;
  ServerSecurity security;
  security.own = desk_;
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto lender,
                             UnitsServer::Start(*container, options, {"127.0.0.1", 0}, security));
  NodeClient client(lender->address().ToString(), kMessageBytes,
                    {attic_, ChannelSecurity::Peer::kLender, ""});
  v1::FetchUnitsRequest request;
  *request.mutable_terms() = MakeTerms(container->manifest());
  request.set_layer(static_cast<uint32_t>(container->manifest().banks.front().layer));
  ToMessage(kInside, request.mutable_slice());
  const auto fetch = [&] {
    return client.FetchUnits(request, container->manifest().unit_layout.unit_bytes,
                             [](int64_t, absl::string_view) { return absl::OkStatus(); }, {});
  };
  EXPECT_THAT(fetch(), Denied("no grant"));
  SHOAL_ASSERT_OK_AND_ASSIGN(*request.mutable_grant(),
                             MakeFetchGrant(*desk_, "attic", container->manifest().identity,
                                            {&kGranted, 1}, absl::Now() + absl::Minutes(1)));
  SHOAL_EXPECT_OK(fetch());
  ToMessage(kBeyond, request.mutable_slice());
  EXPECT_THAT(fetch(), Denied("other slices"));
}

}  // namespace
}  // namespace shoal

// Joining a pool, as those see it who were invited and those who were not.
#include "coordinator/service/join_server.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "common/tls/authority.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/join_client.h"
#include "shoal/v1/membership.grpc.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kDeadline{20};  // so that a test that would hang fails
constexpr int kMostWrong = 3;

class JoinServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK(InitPool(dir_ / "pool", "home", "desk", absl::Now()));
    SHOAL_ASSERT_OK_AND_ASSIGN(authority_, PoolAuthority::Open(dir_ / "pool"));
    SHOAL_ASSERT_OK_AND_ASSIGN(Invites invites, Invites::Open(dir_ / "invites.json"));
    invites_ = std::make_unique<Invites>(std::move(invites));
    JoinServer::Options options;
    options.address = {"127.0.0.1", 0};
    options.most_wrong = kMostWrong;
    options.least_interval = absl::ZeroDuration();
    options.log = [this](absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.emplace_back(line);
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(server_,
                               JoinServer::Start(*authority_, *invites_, std::move(options)));
  }

  InviteCode Invite(const std::string& name, absl::Duration valid = absl::Minutes(1)) {
    InviteCode code;
    code.address = server_->address().ToString();
    absl::StatusOr<std::string> fingerprint =
        FingerprintOf(authority_->authority().certificate_pem());
    EXPECT_THAT(fingerprint, IsOk());
    code.authority_fingerprint = fingerprint.value_or("");
    absl::StatusOr<std::string> secret = server_->Invite(name, absl::Now() + valid);
    EXPECT_THAT(secret, IsOk());
    code.secret = secret.value_or("");
    return code;
  }
  std::string Log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return absl::StrJoin(log_, "\n");
  }
  absl::Status Send(const v1::JoinRequest& request) {
    grpc::SslCredentialsOptions tls;
    tls.pem_root_certs = authority_->authority().certificate_pem();
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("invite.coordinator.shoal");
    const auto stub = v1::Join::NewStub(grpc::CreateCustomChannel(
        server_->address().ToString(), grpc::SslCredentials(tls), arguments));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    v1::JoinReply reply;
    return FromGrpcStatus(stub->Join(&context, request, &reply));
  }

  const TempDir dir_;
  std::unique_ptr<PoolAuthority> authority_;
  std::unique_ptr<Invites> invites_;
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<JoinServer> server_;
};

TEST_F(JoinServerTest, AnInvitedMachineBecomesTheNodeThatWasInvited) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const InviteCode code, ParseInviteCode(Invite("attic").ToString()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Identity identity, JoinPool(code, absl::Now()));
  EXPECT_EQ(identity.certificate.Who(), "node attic");
  EXPECT_EQ(identity.certificate.pool, "home");
  SHOAL_EXPECT_OK(server_->Wait({}));  // nobody is left
}

TEST_F(JoinServerTest, AnInvitationIsGoodOnceAlsoAfterARestart) {
  const InviteCode code = Invite("attic");
  SHOAL_ASSERT_OK(JoinPool(code, absl::Now()).status());
  EXPECT_THAT(JoinPool(code, absl::Now()),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted")));
  EXPECT_THAT(Log(), HasSubstr("the invitation of attic was used"));
  SHOAL_ASSERT_OK_AND_ASSIGN(Invites again, Invites::Open(dir_ / "invites.json"));
  EXPECT_THAT(again.Use(code.secret, absl::Now()),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("was used")));
}

TEST_F(JoinServerTest, AnExpiredInvitationIsRefused) {
  EXPECT_THAT(JoinPool(Invite("attic", -absl::Seconds(1)), absl::Now()),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted")));
  EXPECT_THAT(Log(), HasSubstr("the invitation of attic has expired"));
}

TEST_F(JoinServerTest, WhoDidNotJoinInTimeIsNamed) {
  const InviteCode joins = Invite("attic");
  const InviteCode late = Invite("cellar", absl::Milliseconds(200));
  SHOAL_ASSERT_OK(JoinPool(joins, absl::Now()).status());
  EXPECT_THAT(server_->Wait({}), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                          ::testing::AllOf(HasSubstr("cellar did not join"),
                                                           ::testing::Not(HasSubstr("attic")))));
  // Those of another time are no news to the next listener.
  SHOAL_ASSERT_OK_AND_ASSIGN(Invites again, Invites::Open(dir_ / "invites.json"));
  EXPECT_THAT(again.Expired(absl::InfiniteFuture()), ::testing::IsEmpty());
}

TEST_F(JoinServerTest, WhoGuessesClosesIt) {
  const InviteCode good = Invite("attic");
  InviteCode wrong = good;
  for (int i = 0; i < kMostWrong; ++i) {
    wrong.secret = std::string(kInviteSecretBytes, static_cast<char>('a' + i));
    EXPECT_THAT(JoinPool(wrong, absl::Now()),
                StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted")));
  }
  EXPECT_THAT(JoinPool(good, absl::Now()),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not accepted")));
  EXPECT_THAT(server_->Wait({}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("somebody guesses")));
  EXPECT_EQ(invites_->NumOpen(absl::Now()), 0);
}

TEST_F(JoinServerTest, AnotherAuthoritysListenerIsNotSpokenTo) {
  InviteCode code = Invite("attic");
  code.authority_fingerprint = std::string(64, '0');
  EXPECT_THAT(JoinPool(code, absl::Now()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("not who invited")));
  EXPECT_EQ(invites_->NumOpen(absl::Now()), 1);
}

TEST_F(JoinServerTest, ALargeRequestIsRefusedUnread) {
  v1::JoinRequest request;
  request.set_secret(Invite("attic").secret);
  request.set_certificate_request(std::string(size_t{9} << 10, 'A'));
  EXPECT_THAT(Send(request),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("larger than max")));
  EXPECT_EQ(invites_->NumOpen(absl::Now()), 1);
}

TEST_F(JoinServerTest, ARequestThatIsNoneTellsThePeerNothing) {
  v1::JoinRequest request;
  request.set_secret(Invite("attic").secret);
  request.set_certificate_request("garbage");
  EXPECT_THAT(Send(request), StatusIs(absl::StatusCode::kInvalidArgument, "refused"));
  EXPECT_THAT(Log(), HasSubstr("there is no certificate request"));
}

TEST(InviteCodeTest, IsRefusedWhereAPartIsMissing) {
  const std::string digits(64, 'a');
  EXPECT_THAT(ParseInviteCode("shoal-invite-1/10.0.0.1:7072/" + digits + "/AAAAAAAAAAAAAAAAAAAAAA"),
              IsOk());
  for (const std::string& text :
       {std::string(), "shoal-invite-2/10.0.0.1:7072/" + digits + "/AAAAAAAAAAAAAAAAAAAAAA",
        "shoal-invite-1/10.0.0.1/" + digits + "/AAAAAAAAAAAAAAAAAAAAAA",
        "shoal-invite-1/10.0.0.1:7072/" + digits + "/AAAA",
        std::string("shoal-invite-1/10.0.0.1:7072/aa/AAAAAAAAAAAAAAAAAAAAAA")}) {
    EXPECT_THAT(ParseInviteCode(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shoal cluster invite")));
  }
}

}  // namespace
}  // namespace shoal

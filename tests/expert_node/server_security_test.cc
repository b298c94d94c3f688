// Who gets through to a server, and what is done with those who do not: with real connections, on
// real sockets.
#include "expert_node/service/server_security.h"

#include <gmock/gmock.h>
#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/tls/api_keys.h"
#include "common/tls/pool_authority.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/grpc_status.h"
#include "tests/testing/health_watch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::chrono::seconds kDeadline{20};  // so that a test that would hang fails

constexpr char kExecute[] = "/shoal.v1.ExpertNode/Execute";
constexpr char kGenerate[] = "/shoal.v1.Inference/Generate";
constexpr char kHealth[] = "/grpc.health.v1.Health/Check";

class ServerSecurityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK(InitPool(dir_ / "pool", "home", "desk", absl::Now()));
    SHOAL_ASSERT_OK_AND_ASSIGN(authority_, PoolAuthority::Open(dir_ / "pool"));
    Issue(*authority_, TlsRole::kNode, "attic");
    Issue(*authority_, TlsRole::kNode, "cellar");
    Issue(*authority_, TlsRole::kClient, "notebook");
  }

  void Issue(PoolAuthority& authority, TlsRole role, const std::string& name) {
    IssueAs(authority, role, name, name, ValidFor(absl::Now(), absl::Hours(1)));
  }
  void IssueAs(PoolAuthority& authority, TlsRole role, const std::string& name,
               const std::string& directory, const Validity& validity) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string key, MakeKeyPem());
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string request, MakeRequestPem(key));
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string pem,
                               authority.Issue(request, role, name, validity, absl::Now()));
    SHOAL_ASSERT_OK(
        StoreIdentity(dir_ / directory, {key, pem, authority.authority().certificate_pem(), {}}));
  }
  SecurityPtr Load(const std::string& directory) {
    auto own = TransportSecurity::Load(
        dir_ / directory, {TlsRole::kCoordinator, TlsRole::kNode, TlsRole::kClient}, Clock::Real());
    EXPECT_THAT(own, IsOk());
    return own.ok() ? *own : nullptr;
  }
  // Of whatever identity, also one that Load would refuse.
  std::shared_ptr<grpc::Channel> Raw(const std::string& directory) {
    grpc::SslCredentialsOptions options;
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride("attic.node.shoal");
    SHOAL_EXPECT_OK(ReadSecretFile(dir_ / "attic/authority.pem").status());
    options.pem_root_certs = ReadSecretFile(dir_ / "attic/authority.pem").value_or("");
    if (!directory.empty()) {
      options.pem_private_key = ReadSecretFile(dir_ / directory + "/key.pem").value_or("");
      options.pem_cert_chain = ReadSecretFile(dir_ / directory + "/certificate.pem").value_or("");
    }
    return grpc::CreateCustomChannel(Address(), grpc::SslCredentials(options), arguments);
  }
  std::shared_ptr<grpc::Channel> As(const std::string& directory, const std::string& expect = "") {
    return grpc::CreateChannel(
        Address(), MakeChannelCredentials({Load(directory), ChannelSecurity::Peer::kNode, expect}));
  }

  // The node "attic", with nothing but health, reflection and channelz.
  void Serve(std::shared_ptr<ApiKeyFile> keys = nullptr, bool tls = true,
             const ServerLimits& limits = {}) {
    GrpcServer::Options options;
    options.limits = limits;
    options.address = {"127.0.0.1", 0};
    options.max_request_bytes = 1 << 16;
    options.security.own = tls ? Load("attic") : nullptr;
    options.security.keys = std::move(keys);
    options.security.log = [this](absl::string_view line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      log_.emplace_back(line);
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(server_, GrpcServer::Start({}, options));
  }
  std::string Address() const { return server_->address().ToString(); }

  // Sends `message` to a method and returns how the call ended.
  static absl::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& key = "", const std::string& message = "") {
    grpc::GenericStub stub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    if (!key.empty()) {
      context.AddMetadata("authorization", "Bearer " + key);
    }
    const grpc::Slice slice(message);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    stub.UnaryCall(&context, method, {}, &request, &reply, [&](grpc::Status result) {
      const std::lock_guard<std::mutex> lock(mutex);
      status = std::move(result);
      done = true;
      changed.notify_all();
    });
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return done; });
    return FromGrpcStatus(status);
  }

  bool WaitForLog(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < end) {
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (std::any_of(log_.begin(), log_.end(),
                        [&](const std::string& line) { return absl::StrContains(line, text); })) {
          return true;
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // between two looks
    }
    ADD_FAILURE() << "not in the log: " << text << "; it has: " << ::testing::PrintToString(log_);
    return false;
  }

  const TempDir dir_;
  std::unique_ptr<PoolAuthority> authority_;
  std::mutex mutex_;
  std::vector<std::string> log_;
  std::unique_ptr<GrpcServer> server_;  // goes first
};

// Nothing answers there, so that UNIMPLEMENTED says that a call came through.
TEST_F(ServerSecurityTest, ARoleMayCallWhatTheTableGivesIt) {
  Serve();
  EXPECT_THAT(Call(As("pool/coordinator"), kExecute),
              StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(Call(As("cellar"), kExecute),
              StatusIs(absl::StatusCode::kPermissionDenied, "not allowed"));
  EXPECT_TRUE(WaitForLog("node cellar: /shoal.v1.ExpertNode/Execute is for coordinators alone"));
  EXPECT_THAT(Call(As("cellar"), "/shoal.v1.ExpertNode/FetchUnits"),
              StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(Call(As("notebook"), "/shoal.v1.ExpertNode/Describe"),
              StatusIs(absl::StatusCode::kPermissionDenied, "not allowed"));
  EXPECT_THAT(Call(As("notebook"), kGenerate), StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(Call(As("pool/coordinator"), "/shoal.v2.New/Method"),
              StatusIs(absl::StatusCode::kPermissionDenied, "not allowed"));
  SHOAL_EXPECT_OK(Call(As("notebook"), kHealth));
}

TEST_F(ServerSecurityTest, WithoutACertificateNothingIsAnswered) {
  Serve();
  EXPECT_THAT(Call(Raw(""), kHealth),
              StatusIs(absl::StatusCode::kUnavailable, Not(HasSubstr("certificate"))));
  EXPECT_TRUE(WaitForLog("it shows no certificate"));
  EXPECT_THAT(Call(grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials()), kHealth),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("closed the connection")));
  EXPECT_TRUE(WaitForLog("no TLS that is accepted"));
}

TEST_F(ServerSecurityTest, AnExpiredRevokedOrForeignClientIsRefusedWithTheReasonInTheLogAlone) {
  const absl::Time past = absl::Now() - absl::Hours(48);
  IssueAs(*authority_, TlsRole::kCoordinator, "old", "old", ValidFor(past, absl::Hours(1)));
  SHOAL_ASSERT_OK(InitPool(dir_ / "other", "home", "desk", absl::Now()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, PoolAuthority::Open(dir_ / "other"));
  IssueAs(*other, TlsRole::kCoordinator, "stranger", "stranger",
          ValidFor(absl::Now(), absl::Hours(1)));
  IssueAs(*authority_, TlsRole::kCoordinator, "thief", "thief",
          ValidFor(absl::Now(), absl::Hours(1)));
  SHOAL_ASSERT_OK(authority_->Revoke("thief", absl::Now()).status());
  std::filesystem::copy(dir_ / "pool/authority/revoked.pem", dir_ / "attic/revoked.pem");
  Serve();
  for (const auto& [who, reason] : std::vector<std::pair<std::string, std::string>>{
           {"old", "it expired on"},
           {"stranger", "another authority signed it"},
           {"thief", "coordinator thief is revoked"}}) {
    EXPECT_THAT(Call(Raw(who), kHealth),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(Not(HasSubstr("expired")), Not(HasSubstr("authority")),
                               Not(HasSubstr("revoked")))));
    EXPECT_TRUE(WaitForLog(reason));
  }
  SHOAL_EXPECT_OK(Call(Raw("pool/coordinator"), kHealth));
}

TEST_F(ServerSecurityTest, AChannelReachesTheNodeThatIsMeantAndNoOther) {
  Serve();
  SHOAL_EXPECT_OK(Call(As("pool/coordinator", "attic"), kHealth));
  EXPECT_THAT(Call(As("pool/coordinator", "cellar"), kHealth),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("it is node attic, and the plan has node cellar there")));
  const auto wanted = [&](ChannelSecurity::Peer peer) {
    return grpc::CreateChannel(Address(),
                               MakeChannelCredentials({Load("pool/coordinator"), peer, ""}));
  };
  EXPECT_THAT(Call(wanted(ChannelSecurity::Peer::kCoordinator), kHealth),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("a coordinator is wanted")));
  SHOAL_EXPECT_OK(Call(wanted(ChannelSecurity::Peer::kLender), kHealth));
}

TEST_F(ServerSecurityTest, AServerThatIsRevokedIsNotSpokenTo) {
  Serve();
  SHOAL_ASSERT_OK(authority_->Revoke("attic", absl::Now()).status());
  EXPECT_THAT(Call(As("pool/coordinator", "attic"), kHealth),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("the certificate of node attic is revoked")));
}

// What is no message at all is answered in two ways: by whoever parses it, and by who does not.
TEST_F(ServerSecurityTest, AStrangersMessageIsNotParsed) {
  SHOAL_ASSERT_OK(AddApiKey(dir_ / "keys.json", "laptop", absl::Now()).status());
  SHOAL_ASSERT_OK_AND_ASSIGN(std::shared_ptr<ApiKeyFile> keys,
                             ApiKeyFile::Open(dir_ / "keys.json", Clock::Real()));
  Serve(std::move(keys));
  const std::string garbage(100, '\xff');
  EXPECT_THAT(Call(As("cellar"), kHealth, "", garbage),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("could not parse")));
  EXPECT_THAT(Call(Raw(""), kHealth, "", garbage),
              StatusIs(absl::StatusCode::kUnauthenticated, "not authenticated"));
}

TEST_F(ServerSecurityTest, AKeyIsGoodForInferenceAlone) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string key,
                             AddApiKey(dir_ / "keys.json", "laptop", absl::Now()));
  SHOAL_ASSERT_OK_AND_ASSIGN(std::shared_ptr<ApiKeyFile> keys,
                             ApiKeyFile::Open(dir_ / "keys.json", Clock::Real()));
  Serve(std::move(keys));
  const auto without = Raw("");
  EXPECT_THAT(Call(without, kGenerate, key), StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(Call(without, kExecute, key),
              StatusIs(absl::StatusCode::kPermissionDenied, "not allowed"));
  EXPECT_TRUE(WaitForLog("API key laptop: /shoal.v1.ExpertNode/Execute"));
  EXPECT_THAT(Call(without, kGenerate),
              StatusIs(absl::StatusCode::kUnauthenticated, "not authenticated"));
  EXPECT_THAT(Call(without, kGenerate, key + "x"),
              StatusIs(absl::StatusCode::kUnauthenticated, "not authenticated"));
  EXPECT_TRUE(WaitForLog("the API key is none of ours"));
  EXPECT_THAT(Call(As("pool/coordinator"), kExecute),
              StatusIs(absl::StatusCode::kUnimplemented, ""));
}

TEST_F(ServerSecurityTest, KeysInPlainTextOnLoopback) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string key,
                             AddApiKey(dir_ / "keys.json", "laptop", absl::Now()));
  SHOAL_ASSERT_OK_AND_ASSIGN(std::shared_ptr<ApiKeyFile> keys,
                             ApiKeyFile::Open(dir_ / "keys.json", Clock::Real()));
  Serve(std::move(keys), /*tls=*/false);
  const auto plain = grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials());
  EXPECT_THAT(Call(plain, kGenerate, key), StatusIs(absl::StatusCode::kUnimplemented, ""));
  EXPECT_THAT(Call(plain, kGenerate),
              StatusIs(absl::StatusCode::kUnauthenticated, "not authenticated"));
  SHOAL_EXPECT_OK(Call(plain, kHealth));
  EXPECT_THAT(Call(plain, kExecute), StatusIs(absl::StatusCode::kUnimplemented, ""));
}

// A watch of health is a stream that would never end by itself.
TEST_F(ServerSecurityTest, AnOpenStreamIsCutWhenItsCallerIsRevoked) {
  Serve();
  shoal::testing::HealthWatch good(As("pool/coordinator"), "");
  shoal::testing::HealthWatch thief(As("cellar"), "");
  const std::string serving("\x08\x01");
  ASSERT_EQ(good.Next(), serving);
  ASSERT_EQ(thief.Next(), serving);
  SHOAL_ASSERT_OK(authority_->Revoke("cellar", absl::Now()).status());
  std::filesystem::copy(dir_ / "pool/authority/revoked.pem", dir_ / "attic/revoked.pem");
  EXPECT_TRUE(WaitForLog("an open call of node cellar was cut"));
  EXPECT_EQ(thief.End(), grpc::StatusCode::CANCELLED);
  server_->StopServing();
  EXPECT_EQ(good.Next(), std::string("\x08\x02"));
}

// A stream of server reflection, whose messages are opaque here. By the encoding rules: field 3 of a
// request is a file's name.
class Reflection {
 public:
  explicit Reflection(const std::shared_ptr<grpc::Channel>& channel)
      : method_("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                grpc::internal::RpcMethod::BIDI_STREAMING, channel) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    stream_.reset(
        grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
            channel.get(), method_, &context_));
  }
  bool Ask() {
    const std::string file = "grpc/health/v1/health.proto";
    const grpc::Slice slice("\x1a" + std::string(1, static_cast<char>(file.size())) + file);
    return stream_->Write(grpc::ByteBuffer(&slice, 1));
  }
  bool Read() {
    grpc::ByteBuffer reply;
    return stream_->Read(&reply);
  }
  absl::Status End() {
    while (Read()) {
    }
    return FromGrpcStatus(stream_->Finish());
  }

 private:
  grpc::ClientContext context_;
  grpc::internal::RpcMethod method_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
};

TEST_F(ServerSecurityTest, OneMemberMayNotHaveAllCalls) {
  Serve(nullptr, true, {.calls = {{CallKind::kWatch, {.server = 64, .caller = 2}}}});
  const auto greedy = As("cellar");
  const std::string serving("\x08\x01");
  shoal::testing::HealthWatch first(greedy, "");
  ASSERT_EQ(first.Next(), serving);
  {
    shoal::testing::HealthWatch second(greedy, "");
    ASSERT_EQ(second.Next(), serving);
    // Also over another connection: it is the certificate that counts.
    shoal::testing::HealthWatch third(As("cellar"), "");
    EXPECT_EQ(third.End(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_TRUE(WaitForLog("node cellar has 2 calls of Watch and reflection open"));
    shoal::testing::HealthWatch other(As("pool/coordinator"), "");
    EXPECT_EQ(other.Next(), serving);
    SHOAL_EXPECT_OK(Call(greedy, kHealth));
  }
  // What has ended counts no more.
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  std::string answer;
  while (answer != serving && std::chrono::steady_clock::now() < end) {
    Reflection again(greedy);
    answer = again.Ask() && again.Read() ? serving : "";
  }
  EXPECT_EQ(answer, serving);
}

TEST_F(ServerSecurityTest, WhatLibrariesSayOfMessagesGoesToTheLog) {
  Serve(nullptr, /*tls=*/false);
  const auto channel = grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials());
  const std::string not_utf8 = "\x0a\x02\xc3\x28";  // of the field host
  SHOAL_EXPECT_OK(Call(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                       "", not_utf8));
  EXPECT_TRUE(WaitForLog("refused: a message: String field"));
}

TEST_F(ServerSecurityTest, ASilentStreamIsCut) {
  Serve(nullptr, true, {.patience = {.read = absl::Milliseconds(100)}});
  Reflection silent(As("cellar"));
  ASSERT_TRUE(silent.Ask() && silent.Read());
  EXPECT_THAT(silent.End(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                     HasSubstr("no message came for 100ms")));
}

TEST_F(ServerSecurityTest, WithoutTlsASilentStreamIsCutToo) {
  Serve(nullptr, /*tls=*/false, {.patience = {.read = absl::Milliseconds(100)}});
  Reflection silent(grpc::CreateChannel(Address(), grpc::InsecureChannelCredentials()));
  EXPECT_THAT(silent.End(),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("no message came")));
}

TEST_F(ServerSecurityTest, AReaderThatDoesNotReadIsCut) {
  Serve(nullptr, true, {.patience = {.write = absl::Milliseconds(100)}});
  Reflection slow(As("cellar"));
  while (slow.Ask()) {  // until the server, whose replies fill the window, is not there any more
  }
  EXPECT_THAT(slow.End(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("a message was not taken for")));
}

}  // namespace
}  // namespace shoal

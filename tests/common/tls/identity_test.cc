// Identities, authorities and keys as files.
#include "common/tls/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "common/io/file.h"
#include "common/tls/api_keys.h"
#include "common/tls/pool_authority.h"
#include "common/tls/revocation.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class IdentityTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK(InitPool(dir_ / "pool", "home", "desk", now_));
    SHOAL_ASSERT_OK_AND_ASSIGN(authority_, PoolAuthority::Open(dir_ / "pool"));
  }
  Identity Issue(const std::string& name, TlsRole role = TlsRole::kNode) {
    absl::StatusOr<Identity> identity =
        authority_->IssueIdentity(role, name, ValidFor(now_, absl::Hours(1)), now_);
    EXPECT_THAT(identity, IsOk());
    return *std::move(identity);
  }

  const TempDir dir_;
  const absl::Time now_ = absl::Now();
  std::unique_ptr<PoolAuthority> authority_;
};

TEST_F(IdentityTest, IsTheOwnersAlone) {
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "attic", Issue("attic")));
  EXPECT_EQ(ModeOf(dir_ / "attic"), 0700U);
  EXPECT_EQ(ModeOf(dir_ / "attic/key.pem"), 0600U);
  EXPECT_EQ(ModeOf(dir_ / "pool"), 0700U);
  EXPECT_EQ(ModeOf(dir_ / "pool/authority/key.pem"), 0600U);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Identity identity, LoadIdentity(dir_ / "attic", now_));
  EXPECT_EQ(identity.certificate.Who(), "node attic");
}

TEST_F(IdentityTest, AKeyThatOthersCanReadIsRefused) {
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "attic", Issue("attic")));
  const std::string key = dir_ / "attic/key.pem";
  for (const mode_t mode : {0640, 0604, 0620}) {
    ASSERT_EQ(::chmod(key.c_str(), mode), 0);
    EXPECT_THAT(LoadIdentity(dir_ / "attic", now_),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("chmod 600 " + key)));
  }
}

TEST_F(IdentityTest, ADirectoryIsNoSecret) {
  const absl::Status status = ReadSecretFile(dir_ / ".").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("is no regular file"));
}

TEST_F(IdentityTest, AMismatchedExpiredOrForeignOneIsRefused) {
  const Identity attic = Issue("attic");
  Identity wrong_key = attic;
  wrong_key.key_pem = Issue("cellar").key_pem;
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "wrong_key", wrong_key));
  EXPECT_THAT(LoadIdentity(dir_ / "wrong_key", now_),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("wrong_key"), HasSubstr("not that of the certificate"))));
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "attic", attic));
  EXPECT_THAT(LoadIdentity(dir_ / "attic", now_ + absl::Hours(2)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it expired on")));
  SHOAL_ASSERT_OK(InitPool(dir_ / "other", "home", "desk", now_));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, PoolAuthority::Open(dir_ / "other"));
  Identity foreign = attic;
  foreign.authority_pem = other->authority().certificate_pem();
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "foreign", foreign));
  EXPECT_THAT(LoadIdentity(dir_ / "foreign", now_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another authority")));
  EXPECT_THAT(LoadIdentity(dir_ / "nowhere", now_),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("nowhere/key.pem"), HasSubstr("shoal-node --join"))));
}

TEST_F(IdentityTest, NothingIsOverwritten) {
  SHOAL_ASSERT_OK(StoreIdentity(dir_ / "attic", Issue("attic")));
  EXPECT_THAT(StoreIdentity(dir_ / "attic", Issue("cellar")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("attic is there already")));
  EXPECT_THAT(InitPool(dir_ / "pool", "home", "desk", now_),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("is there already")));
  SHOAL_EXPECT_OK(LoadIdentity(dir_ / "pool/coordinator", now_));
  // And nothing of the attempt is left beside it.
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(dir_ / "")) {
    ++entries;
  }
  EXPECT_EQ(entries, 2);
}

TEST_F(IdentityTest, ANameIsOneMachinesUntilItIsRevoked) {
  (void)Issue("attic");
  EXPECT_THAT(
      authority_->IssueIdentity(TlsRole::kNode, "attic", ValidFor(now_, absl::Hours(1)), now_),
      StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("shoal cluster revoke")));
  EXPECT_THAT(authority_->Revoke("attic", now_), IsOk());
  (void)Issue("attic");
  EXPECT_THAT(authority_->Revoke("cellar", now_),
              StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("desk"), HasSubstr("attic"))));
}

TEST_F(IdentityTest, WhatIsRevokedIsOnTheListsOfAuthorityAndCoordinator) {
  const Identity attic = Issue("attic");
  const Identity cellar = Issue("cellar");
  ASSERT_THAT(authority_->Revoke("attic", now_), IsOk());
  for (const char* path : {"pool/authority/revoked.pem", "pool/coordinator/revoked.pem"}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto file, RevocationFile::Open(dir_ / path, attic.authority_pem, Clock::Real()));
    EXPECT_TRUE(file->IsRevoked(attic.certificate.serial));
    EXPECT_FALSE(file->IsRevoked(cellar.certificate.serial));
  }
  // A list that was begun by one process is gone on with by the next.
  authority_.reset();
  SHOAL_ASSERT_OK_AND_ASSIGN(authority_, PoolAuthority::Open(dir_ / "pool"));
  ASSERT_THAT(authority_->Revoke("cellar", now_), IsOk());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file,
                             RevocationFile::Open(dir_ / "pool/authority/revoked.pem",
                                                  attic.authority_pem, Clock::Real()));
  EXPECT_TRUE(file->IsRevoked(attic.certificate.serial));
  EXPECT_TRUE(file->IsRevoked(cellar.certificate.serial));
  EXPECT_EQ(file->number(), 2);
}

TEST_F(IdentityTest, AnAuthorityIsOneProcesssAtATime) {
  EXPECT_THAT(PoolAuthority::Open(dir_ / "pool"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another process")));
}

TEST(ApiKeysTest, AreKeptAsDigestsAndFoundByTheirText) {
  const TempDir dir;
  const std::string path = dir / "keys.json";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string key, AddApiKey(path, "laptop", absl::Now()));
  EXPECT_THAT(key, StartsWith("shoal_"));
  EXPECT_THAT(key, SizeIs(6 + 43));  // 256 bits, six a character
  EXPECT_EQ(ModeOf(path), 0600U);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(path, 1 << 20));
  EXPECT_THAT(text, Not(HasSubstr(key.substr(6))));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, ApiKeyFile::Open(path, Clock::Real()));
  EXPECT_EQ(file->NameOf(key), "laptop");
  EXPECT_EQ(file->NameOf(key + "x"), std::nullopt);
  EXPECT_EQ(file->NameOf(""), std::nullopt);
}

class SteppedClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::FromUnixSeconds(1'000'000);
};

TEST(ApiKeysTest, ARevokedKeyIsRefusedAtTheNextLook) {
  const TempDir dir;
  const std::string path = dir / "keys.json";
  SteppedClock clock;
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string key, AddApiKey(path, "laptop", absl::Now()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string other, AddApiKey(path, "phone", absl::Now()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto file, ApiKeyFile::Open(path, clock));
  SHOAL_ASSERT_OK(RemoveApiKey(path, "laptop"));
  clock.now += absl::Seconds(1);
  EXPECT_EQ(file->NameOf(key), std::nullopt);
  EXPECT_FALSE(file->Has("laptop"));
  EXPECT_EQ(file->NameOf(other), "phone");
  ASSERT_TRUE(fs::remove(path));
  clock.now += absl::Seconds(1);
  EXPECT_EQ(file->NameOf(other), std::nullopt);
}

TEST(ApiKeysTest, SayWhatIsWrongWithNamesAndFiles) {
  const TempDir dir;
  const std::string path = dir / "keys.json";
  EXPECT_THAT(RemoveApiKey(path, "laptop"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("laptop")));
  SHOAL_ASSERT_OK(AddApiKey(path, "laptop", absl::Now()).status());
  EXPECT_THAT(AddApiKey(path, "laptop", absl::Now()),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("laptop")));
  EXPECT_THAT(AddApiKey(path, "a b", absl::Now()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a b")));
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_THAT(ApiKeyFile::Open(path, Clock::Real()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("chmod 600")));
  EXPECT_THAT(ReadApiKeys(dir / "none.json"), IsOk());
}

}  // namespace
}  // namespace shoal

// What an authority signs, and what is believed of it. OpenSSL's own tool is the second reader.
#include "common/tls/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/tls/authority.h"
#include "common/tls/revocation.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);
constexpr absl::Duration kDay = absl::Hours(24);

class CertificateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(key_, MakeKeyPem());
    SHOAL_ASSERT_OK_AND_ASSIGN(request_, MakeRequestPem(key_));
  }
  static Authority NewAuthority(const std::string& pool = "home") {
    absl::StatusOr<Authority> authority = Authority::Make(pool, ValidFor(kNow, 100 * kDay));
    EXPECT_THAT(authority, IsOk());
    return *std::move(authority);
  }
  std::string Issue(const Authority& authority, TlsRole role, const std::string& name,
                    absl::Duration validity = kDay) const {
    absl::StatusOr<std::string> pem =
        authority.Issue(request_, role, name, ValidFor(kNow, validity));
    EXPECT_THAT(pem, IsOk());
    return pem.value_or("");
  }

  std::string key_;
  std::string request_;
};

TEST_F(CertificateTest, SaysPoolRoleAndName) {
  const Authority authority = NewAuthority();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const Certificate certificate,
      VerifyCertificate(Issue(authority, TlsRole::kNode, "at.tic_2"), authority.certificate_pem(),
                        TlsSide::kServer, kNow));
  EXPECT_EQ(certificate.pool, "home");
  EXPECT_EQ(certificate.role, TlsRole::kNode);
  EXPECT_EQ(certificate.name, "at.tic_2");
  EXPECT_EQ(certificate.not_after, kNow + kDay);
  EXPECT_EQ(certificate.fingerprint.size(), 64U);
  EXPECT_EQ(certificate.serial.size(), 32U);
}

TEST_F(CertificateTest, IsRefusedAfterItsEndAndBeforeItsBeginning) {
  const Authority authority = NewAuthority();
  const std::string pem = Issue(authority, TlsRole::kNode, "attic");
  const auto at = [&](absl::Time time) {
    return VerifyCertificate(pem, authority.certificate_pem(), TlsSide::kServer, time);
  };
  EXPECT_THAT(at(kNow + kDay - absl::Seconds(2)), IsOk());
  EXPECT_THAT(at(kNow + kDay + absl::Seconds(2)),
              StatusIs(absl::StatusCode::kUnauthenticated,
                       AllOf(HasSubstr("node attic"), HasSubstr("it expired on 2027-01-16"))));
  EXPECT_THAT(at(kNow - kDay),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("not valid before")));
}

TEST_F(CertificateTest, OfAnotherAuthorityIsRefused) {
  const Authority authority = NewAuthority();
  const Authority other = NewAuthority();  // the same name, another key
  EXPECT_THAT(
      VerifyCertificate(Issue(other, TlsRole::kCoordinator, "c"), authority.certificate_pem(),
                        TlsSide::kClient, kNow),
      StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("another authority signed it")));
}

TEST_F(CertificateTest, OfAClientIsNoServers) {
  const Authority authority = NewAuthority();
  const std::string pem = Issue(authority, TlsRole::kClient, "notebook");
  EXPECT_THAT(VerifyCertificate(pem, authority.certificate_pem(), TlsSide::kClient, kNow), IsOk());
  EXPECT_THAT(VerifyCertificate(pem, authority.certificate_pem(), TlsSide::kServer, kNow),
              StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("this side")));
}

TEST_F(CertificateTest, TheAuthorityIsNoMember) {
  const Authority authority = NewAuthority();
  EXPECT_FALSE(VerifyCertificate(authority.certificate_pem(), authority.certificate_pem(),
                                 TlsSide::kClient, kNow)
                   .ok());
}

// A member's certificate must not make members: it is no authority.
TEST_F(CertificateTest, AMemberSignsNobody) {
  const Authority authority = NewAuthority();
  EXPECT_THAT(
      Authority::FromPem(key_, Issue(authority, TlsRole::kNode, "attic")),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("none of a pool's authority")));
}

TEST_F(CertificateTest, ARequestGivesItsKeyAndNothingElse) {
  const Authority authority = NewAuthority();
  EXPECT_THAT(authority.Issue("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n", TlsRole::kNode, "a",
                              ValidFor(kNow, kDay)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("certificate request")));
  EXPECT_THAT(authority.Issue(request_, TlsRole::kNode, "a/b", ValidFor(kNow, kDay)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the name")));
  // Another key's signature: one character of it differs.
  std::string forged = request_;
  const size_t end = forged.find("\n-----END");
  forged[end - 8] = forged[end - 8] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(authority.Issue(forged, TlsRole::kNode, "a", ValidFor(kNow, kDay)).ok());
}

TEST_F(CertificateTest, GarbageIsRefused) {
  const Authority authority = NewAuthority();
  for (const std::string& text :
       {std::string(), std::string("garbage"), std::string(100'000, 'A'), key_, request_}) {
    EXPECT_FALSE(VerifyCertificate(text, authority.certificate_pem(), TlsSide::kClient, kNow).ok());
  }
}

TEST_F(CertificateTest, ListsOfRevokedHoldTheirSerialsAndAreSigned) {
  const Authority authority = NewAuthority();
  const std::vector<std::string> serials = {"69d1", "7fffffffffffffffffffffffffffffff"};
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string pem, authority.SignRevocations(7, serials, kNow));
  SHOAL_ASSERT_OK_AND_ASSIGN(const RevocationList list,
                             ParseRevocations(pem, authority.certificate_pem()));
  EXPECT_EQ(list.number, 7);
  EXPECT_THAT(list.serials, UnorderedElementsAre("69d1", "7fffffffffffffffffffffffffffffff"));
  EXPECT_THAT(ParseRevocations(pem, NewAuthority().certificate_pem()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not signed by")));
}

TEST_F(CertificateTest, ARevocationFileNeverGoesBack) {
  const TempDir dir;
  const Authority authority = NewAuthority();
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto file,
      RevocationFile::Open(dir / "revoked.pem", authority.certificate_pem(), Clock::Real()));
  EXPECT_FALSE(file->IsRevoked("69d1"));
  const std::vector<std::string> first = {"69d1"};
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string older, authority.SignRevocations(1, {}, kNow));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string newer, authority.SignRevocations(2, first, kNow));
  SHOAL_ASSERT_OK(file->Replace(newer));
  EXPECT_TRUE(file->IsRevoked("69d1"));
  SHOAL_ASSERT_OK(file->Replace(older));
  EXPECT_TRUE(file->IsRevoked("69d1"));
  EXPECT_EQ(file->number(), 2);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto again,
      RevocationFile::Open(dir / "revoked.pem", authority.certificate_pem(), Clock::Real()));
  EXPECT_TRUE(again->IsRevoked("69d1"));
}

}  // namespace
}  // namespace shoal

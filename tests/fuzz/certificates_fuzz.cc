// Feeds certificates, requests for them and lists of revoked ones, as strangers send them. The first byte
// says what the rest is: a text in PEM, the DER of one of them, or bytes that are changed in a good one.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/tls/authority.h"
#include "common/tls/certificate.h"
#include "common/tls/revocation.h"

namespace {

// When the good ones were made: their time has not run out then.
const absl::Time kThen = absl::FromUnixSeconds(1'796'234'400);
constexpr char kPool[] = SHOAL_SOURCE_DIR "/tests/fuzz/pool/";

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

std::string Read(const std::string& name) {
  std::ifstream in(absl::StrCat(kPool, name), std::ios::binary);
  Expect(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string& AuthorityPem() {
  static const auto* const pem = new std::string(Read("authority.pem"));
  return *pem;
}

const shoal::Authority& OwnAuthority() {
  static const auto* const authority = new shoal::Authority(
      shoal::Authority::Make("home", shoal::ValidFor(kThen, absl::Hours(24))).value());
  return *authority;
}

// The checks are true where it is accepted.

// Whatever was sent, the certificate has the name that the invitation was made for.
bool CheckRequest(const std::string& pem) {
  const auto issued = OwnAuthority().Issue(pem, shoal::TlsRole::kNode, "attic",
                                           shoal::ValidFor(kThen, absl::Hours(1)));
  if (!issued.ok()) {
    Expect(absl::IsInvalidArgument(issued.status()));
    return false;
  }
  const auto verified = shoal::VerifyCertificate(*issued, OwnAuthority().certificate_pem(),
                                                 shoal::TlsSide::kServer, kThen);
  Expect(verified.ok() && verified->name == "attic" && verified->role == shoal::TlsRole::kNode);
  return true;
}

// Only the one certificate that the pool's authority signed is good.
bool CheckCertificate(const std::string& pem) {
  (void)shoal::ParseCertificate(pem);
  (void)shoal::FingerprintOf(pem);
  bool accepted = false;
  for (const shoal::TlsSide side : {shoal::TlsSide::kClient, shoal::TlsSide::kServer}) {
    const auto verified = shoal::VerifyCertificate(pem, AuthorityPem(), side, kThen);
    if (verified.ok()) {
      accepted = true;
      Expect(verified->pool == "home" && verified->name == "attic" &&
             verified->role == shoal::TlsRole::kNode);
    } else {
      Expect(absl::IsUnauthenticated(verified.status()) ||
             absl::IsInvalidArgument(verified.status()));
    }
  }
  // As the authority of a stranger.
  (void)shoal::VerifyCertificate(AuthorityPem(), pem, shoal::TlsSide::kServer, kThen);
  return accepted;
}

bool CheckList(const std::string& pem) {
  const auto list = shoal::ParseRevocations(pem, AuthorityPem());
  if (list.ok()) {
    Expect(list->number == 1 && list->serials.size() == 1);
  } else {
    Expect(absl::IsInvalidArgument(list.status()));
  }
  return list.ok();
}

struct Kind {
  const char* file;
  const char* label;
  bool (*check)(const std::string& pem);
};
constexpr std::array<Kind, 3> kKinds = {{
    {"request.pem", "CERTIFICATE REQUEST", CheckRequest},
    {"certificate.pem", "CERTIFICATE", CheckCertificate},
    {"revoked.pem", "X509 CRL", CheckList},
}};

std::string ToPem(const char* label, absl::string_view der) {
  const std::string text = absl::Base64Escape(der);
  std::string pem = absl::StrCat("-----BEGIN ", label, "-----\n");
  for (size_t at = 0; at < text.size(); at += 64) {
    absl::StrAppend(&pem, text.substr(at, 64), "\n");
  }
  return absl::StrCat(pem, "-----END ", label, "-----\n");
}

// Of the first object in a PEM text that is good.
std::string DerOf(const std::string& pem) {
  std::string der;
  const size_t begin = pem.find("-----\n") + 6;
  Expect(absl::Base64Unescape(pem.substr(begin, pem.find("-----END") - begin), &der));
  return der;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const uint8_t how = data[0] / 64;
  const Kind& kind = kKinds[data[0] % kKinds.size()];
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if (how == 0) {
    kind.check(rest);
  } else if (how == 1) {
    kind.check(ToPem(kind.label, rest));
  } else {
    // Place and value, again and again.
    std::string der = DerOf(Read(kind.file));
    for (size_t i = 0; i + 3 <= rest.size(); i += 3) {
      const auto at = static_cast<uint8_t>(rest[i]) + 256U * static_cast<uint8_t>(rest[i + 1]);
      der[at % der.size()] = rest[i + 2];
    }
    const bool accepted = kind.check(ToPem(kind.label, der));
    Expect(accepted || rest.size() >= 3);  // the good one itself
  }
  return 0;
}

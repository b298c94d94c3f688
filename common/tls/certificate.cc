#include "common/tls/certificate.h"

#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/container/slice_json.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

constexpr absl::string_view kScheme = "shoal://";
// 112 bits and more: no RSA below 2048, no SHA-1.
constexpr int kSecurityLevel = 2;

struct Deleter {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const { X509_STORE_CTX_free(context); }
};

// The one URI among the alternative names; nothing where there is none or are several.
std::optional<std::string> UriOf(const X509& certificate) {
  const std::unique_ptr<GENERAL_NAMES, Deleter> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::optional<std::string> uri;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) {
      continue;
    }
    if (uri.has_value()) {
      return std::nullopt;
    }
    const ASN1_IA5STRING* text = name->d.uniformResourceIdentifier;
    uri.emplace(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                static_cast<size_t>(ASN1_STRING_length(text)));
  }
  return uri;
}

absl::StatusOr<std::string> Fingerprint(const X509& certificate) {
  Sha256Digest digest{};
  unsigned int size = 0;
  if (X509_digest(&certificate, EVP_sha256(), reinterpret_cast<unsigned char*>(digest.data()),
                  &size) != 1 ||
      size != digest.size()) {
    return OpensslError("digest a certificate");
  }
  return ToHex(digest);
}

absl::StatusOr<Certificate> Describe(const X509& x509) {
  const std::optional<std::string> uri = UriOf(x509);
  absl::string_view rest = uri.has_value() ? absl::string_view(*uri) : absl::string_view();
  const bool ours = absl::ConsumePrefix(&rest, kScheme);
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  const std::optional<TlsRole> role =
      ours && parts.size() == 3 ? ParseTlsRole(parts[1]) : std::nullopt;
  if (!role.has_value()) {
    return absl::InvalidArgumentError(
        "the certificate is none of a pool: it has no name like shoal://POOL/node/NAME");
  }
  SHOAL_RETURN_IF_ERROR(CheckNodeName(parts[0], "the pool's name in the certificate"));
  SHOAL_RETURN_IF_ERROR(CheckNodeName(parts[2], "the name in the certificate"));
  Certificate certificate;
  certificate.pool = std::string(parts[0]);
  certificate.role = *role;
  certificate.name = std::string(parts[2]);
  certificate.not_before = TimeOf(X509_get0_notBefore(&x509));
  certificate.not_after = TimeOf(X509_get0_notAfter(&x509));
  certificate.serial = HexOf(X509_get0_serialNumber(&x509));
  SHOAL_ASSIGN_OR_RETURN(certificate.fingerprint, Fingerprint(x509));
  return certificate;
}

std::string DateOf(const ASN1_TIME* time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", TimeOf(time), absl::UTCTimeZone());
}

// Why OpenSSL does not accept the certificate, in the words of who has to act.
std::string Reason(int error, const X509& x509) {
  switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat("it expired on ", DateOf(X509_get0_notAfter(&x509)));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat("it is not valid before ", DateOf(X509_get0_notBefore(&x509)),
                          "; is a clock wrong?");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "another authority signed it than this pool's";
    case X509_V_ERR_INVALID_PURPOSE:
      return "it is not made for this side of a connection";
    default:
      return X509_verify_cert_error_string(error);
  }
}

}  // namespace

absl::string_view TlsRoleName(TlsRole role) {
  switch (role) {
    case TlsRole::kCoordinator:
      return "coordinator";
    case TlsRole::kNode:
      return "node";
    case TlsRole::kClient:
      return "client";
  }
  return "client";
}

std::optional<TlsRole> ParseTlsRole(absl::string_view text) {
  for (const TlsRole role : {TlsRole::kCoordinator, TlsRole::kNode, TlsRole::kClient}) {
    if (text == TlsRoleName(role)) {
      return role;
    }
  }
  return std::nullopt;
}

std::string Certificate::Who() const { return absl::StrCat(TlsRoleName(role), " ", name); }

std::string CertificateUri(absl::string_view pool, TlsRole role, absl::string_view name) {
  return absl::StrCat(kScheme, pool, "/", TlsRoleName(role), "/", name);
}

std::string CertificateHost(TlsRole role, absl::string_view name) {
  return absl::StrCat(name, ".", TlsRoleName(role), ".shoal");
}

absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem) {
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle x509, CertificateFromPem(pem));
  return Describe(*x509);
}

absl::StatusOr<std::string> FingerprintOf(absl::string_view pem) {
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle x509, CertificateFromPem(pem));
  return Fingerprint(*x509);
}

absl::StatusOr<Certificate> VerifyCertificate(absl::string_view pem,
                                              absl::string_view authority_pem, TlsSide side,
                                              absl::Time now) {
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle authority, CertificateFromPem(authority_pem));
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle x509, CertificateFromPem(pem));
  const std::unique_ptr<X509_STORE, Deleter> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, Deleter> context(X509_STORE_CTX_new());
  if (store == nullptr || context == nullptr ||
      X509_STORE_add_cert(store.get(), authority.get()) != 1 ||
      X509_STORE_CTX_init(context.get(), store.get(), x509.get(), nullptr) != 1) {
    return OpensslError("verify a certificate");
  }
  X509_VERIFY_PARAM* rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_depth(rules, 0);
  X509_VERIFY_PARAM_set_auth_level(rules, kSecurityLevel);
  X509_VERIFY_PARAM_set_purpose(
      rules, side == TlsSide::kServer ? X509_PURPOSE_SSL_SERVER : X509_PURPOSE_SSL_CLIENT);
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    ERR_clear_error();
    const absl::StatusOr<Certificate> said = Describe(*x509);
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate", said.ok() ? absl::StrCat(" of ", said->Who()) : "",
                     " is refused: ", Reason(error, *x509)));
  }
  return Describe(*x509);
}

}  // namespace shoal

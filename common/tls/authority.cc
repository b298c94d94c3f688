#include "common/tls/authority.h"

#include <openssl/asn1.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <array>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// Clocks of a pool may differ by so much.
constexpr absl::Duration kClockDifference = absl::Minutes(5);
constexpr long kVersion3 = 2;     // as X.509 writes it
constexpr long kCrlVersion2 = 1;  // the same
constexpr int kSerialBytes = 16;
constexpr char kCommonNameOfAuthority[] = "Shoal authority";

struct Deleter {
  void operator()(ASN1_INTEGER* value) const { ASN1_INTEGER_free(value); }
  void operator()(BIGNUM* value) const { BN_free(value); }
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(GENERAL_NAME* name) const { GENERAL_NAME_free(name); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(X509_NAME* name) const { X509_NAME_free(name); }
  void operator()(X509_REVOKED* entry) const { X509_REVOKED_free(entry); }
};
template <typename T>
using Owned = std::unique_ptr<T, Deleter>;
using TimeHandle = std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)>;

TimeHandle Asn1Time(absl::Time time) {
  return {ASN1_TIME_set(nullptr, absl::ToTimeT(time)), &ASN1_TIME_free};
}

bool SetRandomSerial(X509& certificate) {
  std::array<unsigned char, kSerialBytes> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return false;
  }
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, full length
  const Owned<BIGNUM> number(BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(&certificate)) != nullptr;
}

Owned<X509_NAME> MakeName(const std::string& pool, const std::string& common_name) {
  Owned<X509_NAME> name(X509_NAME_new());
  const auto add = [&](const char* field, const std::string& value) {
    return X509_NAME_add_entry_by_txt(name.get(), field, MBSTRING_UTF8,
                                      reinterpret_cast<const unsigned char*>(value.c_str()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  return name != nullptr && add("O", pool) && add("CN", common_name) ? std::move(name) : nullptr;
}

// `value` is a literal of ours: OpenSSL parses it.
bool AddExtension(X509& certificate, X509& issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const Owned<X509_EXTENSION> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension != nullptr && X509_add_ext(&certificate, extension.get(), -1) == 1;
}

bool AddAlternativeNames(X509& certificate, const std::string& uri, const std::string& host) {
  const Owned<GENERAL_NAMES> names(GENERAL_NAMES_new());
  const auto add = [&names](int type, const std::string& text) {
    Owned<GENERAL_NAME> name(GENERAL_NAME_new());
    ASN1_IA5STRING* value = ASN1_IA5STRING_new();
    if (name == nullptr || value == nullptr ||
        ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) != 1) {
      ASN1_IA5STRING_free(value);
      return false;
    }
    GENERAL_NAME_set0_value(name.get(), type, value);
    return sk_GENERAL_NAME_push(names.get(), name.get()) > 0 && name.release() != nullptr;
  };
  return names != nullptr && add(GEN_URI, uri) && add(GEN_DNS, host) &&
         X509_add1_ext_i2d(&certificate, NID_subject_alt_name, names.get(), 0,
                           X509V3_ADD_DEFAULT) == 1;
}

// What every certificate of ours has; the subject's key is `key`.
bool FillIn(X509& certificate, EVP_PKEY& key, const X509_NAME& subject, const X509_NAME& issuer,
            const Validity& validity) {
  const TimeHandle before = Asn1Time(validity.not_before);
  const TimeHandle after = Asn1Time(validity.not_after);
  return before != nullptr && after != nullptr && X509_set_version(&certificate, kVersion3) == 1 &&
         SetRandomSerial(certificate) && X509_set1_notBefore(&certificate, before.get()) == 1 &&
         X509_set1_notAfter(&certificate, after.get()) == 1 &&
         X509_set_subject_name(&certificate, &subject) == 1 &&
         X509_set_issuer_name(&certificate, &issuer) == 1 &&
         X509_set_pubkey(&certificate, &key) == 1;
}

bool IsP256(const EVP_PKEY& key) {
  std::array<char, 32> group{};
  size_t size = 0;
  return EVP_PKEY_is_a(&key, "EC") == 1 &&
         EVP_PKEY_get_group_name(&key, group.data(), group.size(), &size) == 1 &&
         absl::string_view(group.data(), size) == "prime256v1";
}

std::string OrganizationOf(const X509& certificate) {
  std::array<char, 128> text{};
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(&certificate),
                                             NID_organizationName, text.data(), text.size());
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "";
}

bool AddRevoked(X509_CRL& list, const std::string& serial, const ASN1_TIME& now) {
  BIGNUM* parsed = nullptr;
  if (BN_hex2bn(&parsed, serial.c_str()) != static_cast<int>(serial.size()) || serial.empty()) {
    BN_free(parsed);
    return false;
  }
  const Owned<BIGNUM> number(parsed);
  const Owned<ASN1_INTEGER> integer(BN_to_ASN1_INTEGER(number.get(), nullptr));
  Owned<X509_REVOKED> entry(X509_REVOKED_new());
  if (integer == nullptr || entry == nullptr ||
      X509_REVOKED_set_serialNumber(entry.get(), integer.get()) != 1 ||
      X509_REVOKED_set_revocationDate(entry.get(), const_cast<ASN1_TIME*>(&now)) != 1 ||
      X509_CRL_add0_revoked(&list, entry.get()) != 1) {
    return false;
  }
  (void)entry.release();  // the list's now
  return true;
}

}  // namespace

Validity ValidFor(absl::Time now, absl::Duration duration) {
  return {now - kClockDifference, now + duration};
}

absl::StatusOr<std::string> MakeKeyPem() {
  SHOAL_ASSIGN_OR_RETURN(const KeyHandle key, MakeKey());
  return ToPem(*key);
}

absl::StatusOr<std::string> MakeRequestPem(absl::string_view key_pem) {
  SHOAL_ASSIGN_OR_RETURN(const KeyHandle key, KeyFromPem(key_pem));
  const RequestHandle request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0) {
    return OpensslError("make a certificate request");
  }
  return ToPem(*request);
}

Authority::Authority(KeyHandle key, CertificateHandle certificate, std::string pool,
                     std::string certificate_pem)
    : key_(std::move(key)),
      certificate_(std::move(certificate)),
      pool_(std::move(pool)),
      certificate_pem_(std::move(certificate_pem)) {}

absl::StatusOr<Authority> Authority::Make(const std::string& pool, const Validity& validity) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(pool, "the pool's name"));
  SHOAL_ASSIGN_OR_RETURN(KeyHandle key, MakeKey());
  CertificateHandle certificate(X509_new());
  const Owned<X509_NAME> name = MakeName(pool, kCommonNameOfAuthority);
  if (certificate == nullptr || name == nullptr ||
      !FillIn(*certificate, *key, *name, *name, validity) ||
      !AddExtension(*certificate, *certificate, NID_basic_constraints,
                    "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(*certificate, *certificate, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(*certificate, *certificate, NID_subject_key_identifier, "hash") ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0) {
    return OpensslError("make an authority");
  }
  SHOAL_ASSIGN_OR_RETURN(std::string pem, ToPem(*certificate));
  return Authority(std::move(key), std::move(certificate), pool, std::move(pem));
}

absl::StatusOr<Authority> Authority::FromPem(absl::string_view key_pem,
                                             absl::string_view certificate_pem) {
  SHOAL_ASSIGN_OR_RETURN(KeyHandle key, KeyFromPem(key_pem));
  SHOAL_ASSIGN_OR_RETURN(CertificateHandle certificate, CertificateFromPem(certificate_pem));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    (void)OpensslError("");
    return absl::InvalidArgumentError("the key is not that of the certificate");
  }
  std::string pool = OrganizationOf(*certificate);
  if (X509_check_ca(certificate.get()) != 1 || !CheckNodeName(pool, "").ok()) {
    return absl::InvalidArgumentError("the certificate is none of a pool's authority");
  }
  SHOAL_ASSIGN_OR_RETURN(std::string pem, ToPem(*certificate));
  return Authority(std::move(key), std::move(certificate), std::move(pool), std::move(pem));
}

absl::StatusOr<std::string> Authority::KeyPem() const { return ToPem(*key_); }

absl::StatusOr<std::string> Authority::Issue(absl::string_view request_pem, TlsRole role,
                                             const std::string& name,
                                             const Validity& validity) const {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(name, "the name"));
  SHOAL_ASSIGN_OR_RETURN(const RequestHandle request, RequestFromPem(request_pem));
  EVP_PKEY* key = X509_REQ_get0_pubkey(request.get());
  if (key == nullptr || !IsP256(*key) || X509_REQ_verify(request.get(), key) != 1) {
    (void)OpensslError("");
    return absl::InvalidArgumentError(
        "the certificate request is not signed with its own key, or that is not ECDSA on P-256");
  }
  const CertificateHandle certificate(X509_new());
  const Owned<X509_NAME> subject = MakeName(pool_, name);
  const char* usage = role == TlsRole::kClient ? "clientAuth" : "serverAuth,clientAuth";
  if (certificate == nullptr || subject == nullptr ||
      !FillIn(*certificate, *key, *subject, *X509_get_subject_name(certificate_.get()), validity) ||
      !AddExtension(*certificate, *certificate_, NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(*certificate, *certificate_, NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(*certificate, *certificate_, NID_ext_key_usage, usage) ||
      !AddExtension(*certificate, *certificate_, NID_subject_key_identifier, "hash") ||
      !AddExtension(*certificate, *certificate_, NID_authority_key_identifier, "keyid") ||
      !AddAlternativeNames(*certificate, CertificateUri(pool_, role, name),
                           CertificateHost(role, name)) ||
      X509_sign(certificate.get(), key_.get(), EVP_sha256()) == 0) {
    return OpensslError("make a certificate");
  }
  return ToPem(*certificate);
}

absl::StatusOr<std::string> Authority::SignRevocations(int64_t number,
                                                       std::span<const std::string> serials,
                                                       absl::Time now) const {
  const RevocationHandle list(X509_CRL_new());
  const TimeHandle time = Asn1Time(now);
  const Owned<ASN1_INTEGER> crl_number(ASN1_INTEGER_new());
  bool good =
      list != nullptr && time != nullptr && crl_number != nullptr &&
      ASN1_INTEGER_set_int64(crl_number.get(), number) == 1 &&
      X509_CRL_set_version(list.get(), kCrlVersion2) == 1 &&
      X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(certificate_.get())) == 1 &&
      X509_CRL_set1_lastUpdate(list.get(), time.get()) == 1 &&
      X509_CRL_add1_ext_i2d(list.get(), NID_crl_number, crl_number.get(), 0, X509V3_ADD_DEFAULT) ==
          1;
  for (const std::string& serial : serials) {
    good = good && AddRevoked(*list, serial, *time);
  }
  if (!good || X509_CRL_sort(list.get()) != 1 ||
      X509_CRL_sign(list.get(), key_.get(), EVP_sha256()) == 0) {
    return OpensslError("make a revocation list");
  }
  return ToPem(*list);
}

}  // namespace shoal

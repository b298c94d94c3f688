// OpenSSL's objects as owners that free them, and PEM text to and from them. Not for use outside of
// common/tls: everybody else sees certificates as text.
#ifndef SHOAL_COMMON_TLS_OPENSSL_HANDLES_H_
#define SHOAL_COMMON_TLS_OPENSSL_HANDLES_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// As OpenSSL declares them, whose headers only sources include.
struct evp_pkey_st;
struct x509_st;
struct X509_req_st;
struct X509_crl_st;
struct asn1_string_st;

namespace shoal {

struct OpensslDeleter {
  void operator()(evp_pkey_st* key) const;
  void operator()(x509_st* certificate) const;
  void operator()(X509_req_st* request) const;
  void operator()(X509_crl_st* list) const;
};
using KeyHandle = std::unique_ptr<evp_pkey_st, OpensslDeleter>;
using CertificateHandle = std::unique_ptr<x509_st, OpensslDeleter>;
using RequestHandle = std::unique_ptr<X509_req_st, OpensslDeleter>;
using RevocationHandle = std::unique_ptr<X509_crl_st, OpensslDeleter>;

// INTERNAL "`what`: OpenSSL's reason"; empties OpenSSL's queue of errors.
absl::Status OpensslError(absl::string_view what);

// The first object of its kind in the text; INVALID_ARGUMENT where there is none that can be read.
absl::StatusOr<KeyHandle> KeyFromPem(absl::string_view pem);
absl::StatusOr<CertificateHandle> CertificateFromPem(absl::string_view pem);
absl::StatusOr<RequestHandle> RequestFromPem(absl::string_view pem);
absl::StatusOr<RevocationHandle> RevocationFromPem(absl::string_view pem);

absl::StatusOr<std::string> ToPem(evp_pkey_st& key);
absl::StatusOr<std::string> ToPem(x509_st& certificate);
absl::StatusOr<std::string> ToPem(X509_req_st& request);
absl::StatusOr<std::string> ToPem(X509_crl_st& list);

// A new private key, ECDSA on P-256.
absl::StatusOr<KeyHandle> MakeKey();

// Bytes for a secret that nobody can guess.
absl::StatusOr<std::string> RandomBytes(size_t size);

// An ASN.1 time, or the infinite past where it cannot be read: then nothing is valid yet, or still.
absl::Time TimeOf(const asn1_string_st* time);
// An ASN.1 integer in lower-case hexadecimal digits; empty where it cannot be read.
std::string HexOf(const asn1_string_st* integer);

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_OPENSSL_HANDLES_H_

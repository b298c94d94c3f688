#include "common/tls/openssl_handles.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>

#include <ctime>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

struct BioDeleter {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
using BioHandle = std::unique_ptr<BIO, BioDeleter>;

// Reads an object with one of OpenSSL's PEM_read_bio functions, which take a callback for a
// password: none is ever asked for.
template <typename Handle, typename Read>
absl::StatusOr<Handle> FromPem(absl::string_view pem, absl::string_view kind, Read read) {
  if (pem.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("it is too long for a ", kind));
  }
  const BioHandle bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Handle handle(bio == nullptr ? nullptr : read(bio.get(), nullptr, no_password, nullptr));
  if (handle == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat("there is no ", kind, " in PEM in it"));
  }
  return handle;
}

template <typename Write>
absl::StatusOr<std::string> Written(Write write) {
  const BioHandle bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) {
    return OpensslError("write PEM");
  }
  char* bytes = nullptr;
  const auto size = static_cast<size_t>(BIO_get_mem_data(bio.get(), &bytes));
  return std::string(bytes, size);
}

}  // namespace

void OpensslDeleter::operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
void OpensslDeleter::operator()(X509* certificate) const { X509_free(certificate); }
void OpensslDeleter::operator()(X509_REQ* request) const { X509_REQ_free(request); }
void OpensslDeleter::operator()(X509_CRL* list) const { X509_CRL_free(list); }

absl::Status OpensslError(absl::string_view what) {
  char reason[256] = "no reason given";
  if (const unsigned long code = ERR_get_error(); code != 0) {
    ERR_error_string_n(code, reason, sizeof(reason));
  }
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", reason));
}

absl::StatusOr<KeyHandle> KeyFromPem(absl::string_view pem) {
  return FromPem<KeyHandle>(pem, "private key", PEM_read_bio_PrivateKey);
}
absl::StatusOr<CertificateHandle> CertificateFromPem(absl::string_view pem) {
  return FromPem<CertificateHandle>(pem, "certificate", PEM_read_bio_X509);
}
absl::StatusOr<RequestHandle> RequestFromPem(absl::string_view pem) {
  return FromPem<RequestHandle>(pem, "certificate request", PEM_read_bio_X509_REQ);
}
absl::StatusOr<RevocationHandle> RevocationFromPem(absl::string_view pem) {
  return FromPem<RevocationHandle>(pem, "revocation list", PEM_read_bio_X509_CRL);
}

absl::StatusOr<std::string> ToPem(EVP_PKEY& key) {
  return Written([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, &key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}
absl::StatusOr<std::string> ToPem(X509& certificate) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509(bio, &certificate); });
}
absl::StatusOr<std::string> ToPem(X509_REQ& request) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, &request); });
}
absl::StatusOr<std::string> ToPem(X509_CRL& list) {
  return Written([&](BIO* bio) { return PEM_write_bio_X509_CRL(bio, &list); });
}

absl::StatusOr<KeyHandle> MakeKey() {
  KeyHandle key(EVP_EC_gen("P-256"));
  return key != nullptr ? absl::StatusOr<KeyHandle>(std::move(key))
                        : OpensslError("make a private key");
}

absl::StatusOr<std::string> RandomBytes(size_t size) {
  std::string bytes(size, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size)) != 1) {
    return OpensslError("make a secret");
  }
  return bytes;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1) {
    return absl::InfinitePast();
  }
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string HexOf(const ASN1_INTEGER* integer) {
  struct Deleter {
    void operator()(BIGNUM* number) const { BN_free(number); }
    void operator()(char* text) const { OPENSSL_free(text); }
  };
  const std::unique_ptr<BIGNUM, Deleter> number(
      integer == nullptr ? nullptr : ASN1_INTEGER_to_BN(integer, nullptr));
  const std::unique_ptr<char, Deleter> text(number == nullptr ? nullptr : BN_bn2hex(number.get()));
  return text == nullptr ? "" : absl::AsciiStrToLower(text.get());
}

}  // namespace shoal

#include "common/tls/revocation.h"

#include <openssl/asn1.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

constexpr absl::Duration kLookAgainAfter = absl::Milliseconds(500);

struct Deleter {
  void operator()(ASN1_INTEGER* value) const { ASN1_INTEGER_free(value); }
};

int64_t NumberOf(const X509_CRL& list) {
  const std::unique_ptr<ASN1_INTEGER, Deleter> number(
      static_cast<ASN1_INTEGER*>(X509_CRL_get_ext_d2i(&list, NID_crl_number, nullptr, nullptr)));
  int64_t value = 0;
  return number != nullptr && ASN1_INTEGER_get_int64(&value, number.get()) == 1 ? value : 0;
}

}  // namespace

absl::StatusOr<RevocationList> ParseRevocations(absl::string_view pem,
                                                absl::string_view authority_pem) {
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle authority, CertificateFromPem(authority_pem));
  SHOAL_ASSIGN_OR_RETURN(const RevocationHandle crl, RevocationFromPem(pem));
  if (X509_CRL_verify(crl.get(), X509_get0_pubkey(authority.get())) != 1) {
    (void)OpensslError("");
    return absl::InvalidArgumentError("the revocation list is not signed by the pool's authority");
  }
  RevocationList list;
  list.number = NumberOf(*crl);
  if (list.number <= 0) {
    return absl::InvalidArgumentError("the revocation list has no number");
  }
  STACK_OF(X509_REVOKED)* entries = X509_CRL_get_REVOKED(crl.get());
  for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
    list.serials.insert(HexOf(X509_REVOKED_get0_serialNumber(sk_X509_REVOKED_value(entries, i))));
  }
  return list;
}

absl::StatusOr<std::unique_ptr<RevocationFile>> RevocationFile::Open(std::string path,
                                                                     std::string authority_pem,
                                                                     const Clock& clock) {
  std::unique_ptr<RevocationFile> file(
      new RevocationFile(std::move(path), std::move(authority_pem), clock));
  MutexLock lock(&file->mutex_);
  const absl::Status status = file->Read();
  if (!status.ok() && !absl::IsNotFound(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        file->path_, ": ", std::string(status.message()),
        "; copy revoked.pem again from the directory where `shoal cluster revoke` was run"));
  }
  return file;
}

absl::Status RevocationFile::Read() {
  looked_ = clock_.Now();
  SHOAL_ASSIGN_OR_RETURN(std::string pem, ReadTextFile(path_, kMaxRevocationBytes));
  if (pem == pem_) {
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(RevocationList list, ParseRevocations(pem, authority_pem_));
  if (list.number > list_.number) {
    list_ = std::move(list);
    pem_ = std::move(pem);
  }
  return absl::OkStatus();
}

void RevocationFile::LookAgain() {
  if (clock_.Now() - looked_ >= kLookAgainAfter) {
    // What was known before holds where the file is gone or damaged.
    Read().IgnoreError();
  }
}

bool RevocationFile::IsRevoked(absl::string_view serial) {
  MutexLock lock(&mutex_);
  LookAgain();
  return list_.serials.contains(std::string(serial));
}

int64_t RevocationFile::number() {
  MutexLock lock(&mutex_);
  LookAgain();
  return list_.number;
}

std::string RevocationFile::pem() {
  MutexLock lock(&mutex_);
  LookAgain();
  return pem_;
}

absl::Status RevocationFile::Replace(absl::string_view pem) {
  SHOAL_ASSIGN_OR_RETURN(RevocationList list, ParseRevocations(pem, authority_pem_));
  MutexLock lock(&mutex_);
  LookAgain();
  if (list.number <= list_.number) {
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(WriteFileAtomically(path_, pem));
  list_ = std::move(list);
  pem_ = std::string(pem);
  return absl::OkStatus();
}

}  // namespace shoal

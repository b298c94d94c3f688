// Signatures of members over what they say, beyond the connection that they say it on.
#ifndef SHOAL_COMMON_TLS_SIGNATURE_H_
#define SHOAL_COMMON_TLS_SIGNATURE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// ECDSA with SHA-256 over the text, by a private key in PEM.
absl::StatusOr<std::string> Sign(absl::string_view key_pem, absl::string_view text);

// UNAUTHENTICATED unless the key of the certificate (PEM) made the signature over the text. Whether
// the certificate is to be believed is another question.
absl::Status CheckSignature(absl::string_view certificate_pem, absl::string_view text,
                            absl::string_view signature);

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_SIGNATURE_H_

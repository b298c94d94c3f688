#include "coordinator/cli/tls_flags.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "coordinator/cli/exit_code.h"

namespace shoal {

void TlsFlags::Add(FlagSet& flags) {
  flags.Text("--tls", "DIR", &directory,
             "Protect connections: this coordinator's identity, made by\n`shoal cluster init`");
}

absl::StatusOr<SecurityPtr> TlsFlags::Load(Console& console) const {
  if (!directory) {
    return nullptr;
  }
  if (directory->empty()) {
    return UsageError("--tls is empty; give the identity's directory, or leave the flag out");
  }
  absl::StatusOr<std::shared_ptr<TransportSecurity>> own =
      TransportSecurity::Load(*directory, {TlsRole::kCoordinator}, Clock::Real());
  SHOAL_RETURN_IF_ERROR(Annotate(own.status(), "--tls"));
  if (const std::string warning = (*own)->ExpiryWarning(); !warning.empty()) {
    console.Note(absl::StrCat("shoal: ", warning));
  }
  return *std::move(own);
}

absl::Status CheckMayListen(const NetAddress& address, bool tls, bool insecure, Console& console) {
  if (IsLoopback(address) || tls) {
    return absl::OkStatus();
  }
  if (!insecure) {
    return UsageError(absl::StrCat(
        "--listen ", address.ToString(),
        " is not loopback, and without --tls anyone who reaches the port can use and change the ",
        "pool. Pass --tls DIR (`shoal cluster init` makes it), or --insecure to accept that"));
  }
  console.Note(absl::StrCat("shoal: warning: ", address.ToString(),
                            " is open to anyone who reaches it: no TLS"));
  return absl::OkStatus();
}

void ServerFlags::Add(FlagSet& flags) {
  flags.Text("--keys", "FILE", &keys,
             "Take these API keys from clients (`shoal keys add`); beyond this\nmachine with --tls "
             "alone");
}

absl::StatusOr<ServerSecurity> ServerFlags::Security(const TlsFlags& tls, const NetAddress& address,
                                                     bool insecure, Console& console) const {
  SHOAL_RETURN_IF_ERROR(CheckMayListen(address, tls.directory.has_value(), insecure, console));
  ServerSecurity security;
  SHOAL_ASSIGN_OR_RETURN(security.own, tls.Load(console));
  security.log = [&console](absl::string_view line) {
    console.Note(absl::StrCat("shoal: ", line));
  };
  if (!keys) {
    return security;
  }
  if (security.own == nullptr && !IsLoopback(address)) {
    return UsageError("--keys beyond this machine needs --tls: a key in plain text is anybody's");
  }
  absl::StatusOr<std::unique_ptr<ApiKeyFile>> file = ApiKeyFile::Open(*keys, Clock::Real());
  SHOAL_RETURN_IF_ERROR(Annotate(file.status(), "--keys"));
  security.keys = *std::move(file);
  return security;
}

}  // namespace shoal

// The flags that protect connections: who this process is in its pool, and which API keys it takes.
#ifndef SHOAL_COORDINATOR_CLI_TLS_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_TLS_FLAGS_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/console.h"
#include "expert_node/service/server_security.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

struct TlsFlags {
  std::optional<std::string> directory;

  void Add(FlagSet& flags);
  // The identity of a coordinator in the directory; null without the flag. TransportSecurity::Load's
  // errors, after the flag's name; a note on `console` where it expires soon.
  absl::StatusOr<SecurityPtr> Load(Console& console) const;
};

// Whether a server may listen there: on loopback, with TLS, or with `insecure`, which is warned of on
// `console`. A usage error otherwise.
absl::Status CheckMayListen(const NetAddress& address, bool tls, bool insecure, Console& console);

// What `shoal serve` has beside --tls.
struct ServerFlags {
  std::optional<std::string> keys;

  void Add(FlagSet& flags);
  // For a server that listens at `address`. Usage errors of CheckMayListen, or where keys would go
  // over a network in plain text; and those of TlsFlags::Load and ApiKeyFile::Open. Refusals are
  // noted on `console`, which outlives the server.
  absl::StatusOr<ServerSecurity> Security(const TlsFlags& tls, const NetAddress& address,
                                          bool insecure, Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_TLS_FLAGS_H_

// The flags that name the machines of a pool.
#ifndef SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/tls_flags.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// Checks addresses that are to be connected to, and rewrites each as NetAddress::ToString has it.
// Usage errors, which begin with `what`, where one is none, or is beyond this machine without
// protection; where that is wanted, notes it on `console`.
enum class Protection { kNone, kTls, kInsecure };  // kInsecure: none, on purpose
absl::Status CheckNodeAddresses(std::vector<std::string>& addresses, absl::string_view what,
                                Protection protection, Console& console);

// The share, 0 to 1, that an --audit of "5%" means; 0 without it. A usage error where it is none.
absl::StatusOr<double> AuditShare(const std::optional<std::string>& percent);

// The plan in the file that `flag` names; ReadPlan's errors, after the flag.
absl::StatusOr<PoolPlan> ReadPlanOf(absl::string_view flag, const std::string& path);

// Whether --nodes names a file; else it is a list of addresses. A usage error where it is neither.
absl::StatusOr<bool> NodesAreFile(const std::string& nodes);

// The same for the nodes of a plan that are not the coordinator itself.
absl::Status CheckPlanAddresses(PoolPlan& plan, absl::string_view what, Protection protection,
                                Console& console);

// --tls and --insecure of a command that speaks to others.
struct ProtectionFlags {
  TlsFlags tls;
  bool insecure = false;

  void Add(FlagSet& flags);
  Protection protection() const {
    return tls.directory ? Protection::kTls : insecure ? Protection::kInsecure : Protection::kNone;
  }
  bool any() const { return tls.directory.has_value() || insecure; }
};

struct PoolFlags {
  std::optional<std::string> nodes;
  int64_t node_wait_seconds = 60;
  bool alone = false;  // without the container's own banks
  std::optional<std::string> audit;
  ProtectionFlags protection;
  bool listens =
      false;  // the command listens too, so that --tls and --insecure are also about that

  // Flags of a command that computes on a pool, under a heading of their own.
  void Add(FlagSet& flags);
  // --nodes, --tls and --insecure alone; `help` is of the first.
  void AddNodes(FlagSet& flags, const std::string& help);
  // The pool that --nodes names; nothing without it. Usage errors where other flags need it, and
  // those of CheckNodeAddresses.
  absl::StatusOr<std::optional<PoolOptions>> Options(Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

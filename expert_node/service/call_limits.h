// How many calls may be open at once, on a server and for one caller: one table for the methods of all
// services.
#ifndef SHOAL_EXPERT_NODE_SERVICE_CALL_LIMITS_H_
#define SHOAL_EXPERT_NODE_SERVICE_CALL_LIMITS_H_

#include <array>
#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"

namespace shoal {

// Methods that share a limit. docs/protocol.md, section 15, has the table.
enum class CallKind {
  kExecute,
  kCopy,  // FetchUnits, FetchModel
  kFill,
  kAnswer,  // Generate, Chat
  kText,    // Tokenize, Detokenize
  kManage,  // what runs a pool: Cluster, Drill, Membership
  kWatch,   // streams that last: health, reflection
  kOther,   // answered at once
};
inline constexpr size_t kNumCallKinds = 8;

// Of "/shoal.v1.ExpertNode/Execute" and so on; a method that nobody knows is kOther.
CallKind CallKindOf(absl::string_view method);

// Thread-safe.
class CallLimits {
 public:
  struct Most {
    int server = 0;
    int caller = 0;
  };
  // Where a service knows better than the table.
  using Changes = std::map<CallKind, Most>;
  // A call whose message has not come whole counts against its caller for so long.
  static constexpr absl::Duration kUnheard = absl::Minutes(1);

  explicit CallLimits(const Changes& changes = {});

  // At the headers of a call, before its message is read. `caller` is who calls, for messages too; empty
  // where it cannot be told from others: then the server's limit alone holds.
  //   RESOURCE_EXHAUSTED  what is open, and how many may be
  absl::Status Begin(CallKind kind, const std::string& caller, absl::Time now);
  // When its message is there. Counts it also where it is refused, as Begin refuses: Leave follows.
  absl::Status Enter(CallKind kind, const std::string& caller);
  void Leave(CallKind kind, const std::string& caller);

 private:
  struct Calls {
    int open = 0;
    std::deque<absl::Time> unheard;  // since when, the oldest first
  };
  absl::Status Check(CallKind kind, const std::string& caller, int of_caller, int of_server) const;

  std::array<Most, kNumCallKinds> most_;
  Mutex mutex_;
  std::array<int, kNumCallKinds> open_ ABSL_GUARDED_BY(mutex_) = {};
  std::map<std::pair<CallKind, std::string>, Calls> callers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_CALL_LIMITS_H_

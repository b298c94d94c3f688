#include "expert_node/service/call_limits.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

struct Row {
  absl::string_view prefix;  // of the method; the first that fits holds
  CallKind kind;
};

constexpr std::array<Row, 13> kKinds = {{
    {"/shoal.v1.ExpertNode/Execute", CallKind::kExecute},
    {"/shoal.v1.ExpertNode/FetchUnits", CallKind::kCopy},
    {"/shoal.v1.ExpertNode/FetchModel", CallKind::kCopy},
    {"/shoal.v1.ExpertNode/Fill", CallKind::kFill},
    {"/shoal.v1.Inference/Generate", CallKind::kAnswer},
    {"/shoal.v1.Inference/Chat", CallKind::kAnswer},
    {"/shoal.v1.Inference/Tokenize", CallKind::kText},
    {"/shoal.v1.Inference/Detokenize", CallKind::kText},
    {"/shoal.v1.Cluster/", CallKind::kManage},
    {"/shoal.v1.Drill/", CallKind::kManage},
    {"/shoal.v1.Membership/", CallKind::kManage},
    {"/grpc.health.v1.Health/Watch", CallKind::kWatch},
    {"/grpc.reflection.", CallKind::kWatch},
}};

// By kind. The services have limits of their own for what they compute and copy, and say more about
// them; the server's are there for those that no service counts.
constexpr std::array<CallLimits::Most, kNumCallKinds> kMost = {{
    {64,
     3},  // kExecute: two while a plan changes, and one that its coordinator lost without a word
    {64, 4},     // kCopy
    {8, 2},      // kFill
    {1024, 64},  // kAnswer
    {512, 128},  // kText
    {16, 8},     // kManage: each has a thread
    {64, 16},    // kWatch
    {256, 64},   // kOther
}};

constexpr std::array<absl::string_view, kNumCallKinds> kNames = {
    "Execute",
    "FetchUnits and FetchModel",
    "Fill",
    "Generate and Chat",
    "Tokenize and Detokenize",
    "Cluster, Drill and Membership",
    "Watch and reflection",
    "methods that answer at once",
};

size_t Index(CallKind kind) { return static_cast<size_t>(kind); }

}  // namespace

CallKind CallKindOf(absl::string_view method) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(), [method](const Row& row) {
    return absl::StartsWith(method, row.prefix);
  });
  return found == kKinds.end() ? CallKind::kOther : found->kind;
}

CallLimits::CallLimits(const Changes& changes) : most_(kMost) {
  for (const auto& [kind, most] : changes) {
    most_[Index(kind)] = most;
  }
}

absl::Status CallLimits::Begin(CallKind kind, const std::string& caller, absl::Time now) {
  MutexLock lock(&mutex_);
  if (caller.empty()) {
    return Check(kind, caller, 0, open_[Index(kind)] + 1);
  }
  Calls& calls = callers_[{kind, caller}];
  while (!calls.unheard.empty() && now - calls.unheard.front() > kUnheard) {
    calls.unheard.pop_front();
  }
  absl::Status allowed =
      Check(kind, caller, calls.open + static_cast<int>(calls.unheard.size()) + 1,
            open_[Index(kind)] + 1);
  if (allowed.ok()) {
    calls.unheard.push_back(now);
  } else if (calls.open == 0 && calls.unheard.empty()) {
    callers_.erase({kind, caller});
  }
  return allowed;
}

absl::Status CallLimits::Enter(CallKind kind, const std::string& caller) {
  MutexLock lock(&mutex_);
  const int of_server = ++open_[Index(kind)];
  if (caller.empty()) {
    return Check(kind, caller, 0, of_server);
  }
  Calls& calls = callers_[{kind, caller}];
  if (!calls.unheard.empty()) {
    calls.unheard.pop_front();
  }
  return Check(kind, caller, ++calls.open, of_server);
}

void CallLimits::Leave(CallKind kind, const std::string& caller) {
  MutexLock lock(&mutex_);
  --open_[Index(kind)];
  const auto found = callers_.find({kind, caller});
  if (found != callers_.end() && --found->second.open == 0 && found->second.unheard.empty()) {
    callers_.erase(found);
  }
}

absl::Status CallLimits::Check(CallKind kind, const std::string& caller, int of_caller,
                               int of_server) const {
  const Most& most = most_[Index(kind)];
  const absl::string_view what = kNames[Index(kind)];
  if (of_caller > most.caller) {
    return absl::ResourceExhaustedError(absl::StrCat(caller, " has ", of_caller - 1, " calls of ",
                                                     what, " open, and one caller may have ",
                                                     most.caller, "; end some, and try again"));
  }
  if (of_server > most.server) {
    return absl::ResourceExhaustedError(absl::StrCat("the server has ", of_server - 1, " calls of ",
                                                     what, " open, its most; try again"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

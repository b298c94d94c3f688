#include "coordinator/pool/pool_filler.h"

#include <algorithm>
#include <cstddef>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "expert_node/service/listen_address.h"

namespace shoal {
namespace {

constexpr size_t kMostSources = 64;

bool IsOnLoopback(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  return parsed.ok() && IsLoopback(*parsed);
}

absl::Status Look(const Manifest& manifest, FillingNode& node) {
  const absl::StatusOr<NodeHoldings> said =
      AskHoldings(manifest, node.address, node.own, node.name);
  if (said.ok()) {
    node.held = said->slices;
  }
  if (!node.asked_for) {
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(said.status());
  if (said->name != node.name) {
    return absl::FailedPreconditionError(absl::StrCat("node at ", node.address,
                                                      ": it calls itself ", said->name,
                                                      ", and the plan calls it ", node.name));
  }
  node.is_empty = said->empty;
  for (const ExpertSlice& slice : node.wanted) {
    const std::vector<ExpertSlice> missing = Uncovered(slice, said->slices);
    if (!node.is_empty && !missing.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "node ", node.name, " at ", node.address, " is not empty and lacks ",
          FormatSlice(missing.front()), ", which the plan gives it: start it on another DIR"));
    }
  }
  return absl::OkStatus();
}

class Filling {
 public:
  Filling(const LentModel& model, std::span<FillingNode> nodes, int at_once,
          const OnPartitionProgress& on_progress, std::stop_token stop)
      : model_(model),
        at_once_(static_cast<size_t>(at_once)),
        on_progress_(on_progress),
        stop_(std::move(stop)) {
    for (FillingNode& node : nodes) {
      if (node.is_empty) {
        nodes_.push_back(&node);
      }
    }
    results_.resize(nodes_.size());
  }

  absl::Status Run() {
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < std::min(at_once_, nodes_.size()); ++i) {
        threads.emplace_back([this] { Work(); });
      }
    }
    MutexLock lock(&mutex_);
    absl::Status status;
    for (const absl::Status& result : results_) {
      // One that failed says more than those that were stopped.
      if (status.ok() || (absl::IsCancelled(status) && !result.ok())) {
        status = result;
      } else if (!result.ok() && !absl::IsCancelled(result)) {
        status = absl::Status(status.code(),
                              absl::StrCat(status.message(), "\n  and ", result.message()));
      }
    }
    return status;
  }

 private:
  void Work() {
    while (true) {
      size_t mine = 0;
      {
        MutexLock lock(&mutex_);
        if (next_ == nodes_.size()) {
          return;
        }
        mine = next_++;
      }
      FillingNode& node = *nodes_[mine];
      const Clock& clock = Clock::Real();
      const absl::Time start = clock.Now();
      absl::Status result = FillNode(
          model_, {node.address, node.name, node.wanted, node.sources, node.own},
          [&](const PartitionProgress& progress) { Tell(node, progress); }, stop_);
      MutexLock lock(&mutex_);
      node.time = clock.Now() - start;
      if (result.ok()) {
        node.held = node.wanted;
        ++filled_;
      }
      results_[mine] = std::move(result);
    }
  }

  void Tell(FillingNode& node, const PartitionProgress& progress) {
    MutexLock lock(&mutex_);
    node.progress = progress;
    if (!on_progress_) {
      return;
    }
    PartitionProgress sum;
    sum.step = nodes_.size() == 1 ? progress.step
                                  : absl::StrCat(filled_, " of ", nodes_.size(), " nodes filled");
    for (const FillingNode* each : nodes_) {
      sum.bytes_done += each->progress.bytes_done;
      sum.bytes_total += each->progress.bytes_total;
      sum.bytes_kept += each->progress.bytes_kept;
    }
    on_progress_(sum);
  }

  const LentModel& model_;
  const size_t at_once_;
  const OnPartitionProgress& on_progress_;
  const std::stop_token stop_;
  Mutex mutex_;  // also the nodes' progress and results
  std::vector<FillingNode*> nodes_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t filled_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);  // as nodes_
};

}  // namespace

absl::StatusOr<std::vector<FillingNode>> LookAtNodes(const Manifest& manifest, const PoolPlan& plan,
                                                     const std::optional<std::string>& only_node,
                                                     const SecurityPtr& own) {
  std::vector<FillingNode> nodes;
  for (const PoolNode& planned : plan.remote()) {
    if (planned.address.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", planned.name, " has no address in the plan"));
    }
    FillingNode& node = nodes.emplace_back();
    node.name = planned.name;
    node.address = planned.address;
    node.wanted = planned.stored();
    node.own = own;
    node.asked_for = !only_node || planned.name == *only_node;
  }
  if (std::none_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.asked_for; })) {
    return absl::NotFoundError(absl::StrCat("the plan has no node named ", *only_node));
  }
  for (FillingNode& node : nodes) {
    SHOAL_RETURN_IF_ERROR(Look(manifest, node));
  }
  return nodes;
}

std::optional<std::string> NumericAddress(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseListenAddress(address);
  return parsed.ok() ? std::optional(parsed->ToString()) : std::nullopt;
}

std::optional<std::string> ChooseSources(const std::vector<std::string>& from,
                                         const std::string& lender, std::span<FillingNode> nodes) {
  std::optional<std::string> without;
  for (FillingNode& node : nodes) {
    if (!node.is_empty) {
      continue;
    }
    node.sources = from;
    const bool near = IsOnLoopback(node.address);
    for (const FillingNode& other : nodes) {
      const std::optional<std::string> address = NumericAddress(other.address);
      if (from.empty() && address && !other.held.empty() && (near || !IsOnLoopback(*address)) &&
          node.sources.size() + 1 < kMostSources) {
        node.sources.push_back(*address);
      }
    }
    if (from.empty() && !lender.empty() && (near || !IsOnLoopback(lender))) {
      node.sources.push_back(lender);
    }
    if (node.sources.empty() && !without) {
      without = node.name;
    }
  }
  return without;
}

absl::Status FillNodes(const LentModel& model, std::span<FillingNode> nodes, int at_once,
                       const OnPartitionProgress& on_progress, const std::stop_token& stop) {
  return Filling(model, nodes, at_once, on_progress, stop).Run();
}

}  // namespace shoal

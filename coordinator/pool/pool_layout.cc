#include "coordinator/pool/pool_layout.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "coordinator/pool/load_balance.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

constexpr absl::Duration kTryAgain = absl::Milliseconds(250);
constexpr absl::Duration kLookAgain = absl::Milliseconds(50);

// Rows of one request: the largest chunk of a prefill.
constexpr int64_t kMaxRows = 512;
// What a message has beside its rows or sums.
constexpr uint64_t kMessageOverhead = uint64_t{1} << 20;

uint64_t MaxMessageBytes(const ExpertSizes& sizes) {
  const auto rows = static_cast<uint64_t>(kMaxRows);
  const auto hidden = static_cast<uint64_t>(sizes.layout.hidden_size);
  const auto chosen = static_cast<uint64_t>(sizes.num_experts_per_token);
  return rows * (hidden * sizeof(int64_t) + chosen * 2 * sizeof(int64_t)) + kMessageOverhead;
}

absl::Status CheckNodes(const PoolPlan& plan, const Manifest& manifest, bool has_local) {
  if (!plan.identity.empty()) {
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, manifest));
  }
  if (const PoolNode* own = plan.coordinator(); own != nullptr && !has_local) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", own->name,
                     " of the plan is the coordinator itself, which may not read experts "
                     "here: go without --pool-alone, or give what it computes to a node"));
  }
  std::set<std::string> addresses;
  for (const PoolNode& node : plan.remote()) {
    if (node.address.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.name, " of the pool has no address; write it into the plan"));
    }
    if (!addresses.insert(node.address).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the address ", node.address, " is given twice"));
    }
  }
  return addresses.empty() ? absl::InvalidArgumentError("a pool needs at least one node")
                           : absl::OkStatus();
}

}  // namespace

PoolLayout::PoolLayout(const Manifest& manifest, PoolPlan plan, const Clock& clock)
    : plan_(std::move(plan)), sizes_(ExpertSizes::FromManifest(manifest)), clock_(clock) {}

absl::StatusOr<std::unique_ptr<PoolLayout>> PoolLayout::Connect(const Manifest& manifest,
                                                                PoolPlan plan,
                                                                const Options& options,
                                                                const Clock& clock) {
  SHOAL_RETURN_IF_ERROR(CheckNodes(plan, manifest, options.has_local));
  std::unique_ptr<PoolLayout> layout(new PoolLayout(manifest, std::move(plan), clock));
  layout->Dial(manifest, options);
  SHOAL_RETURN_IF_ERROR(layout->AwaitAnswers(options));
  SHOAL_RETURN_IF_ERROR(layout->CheckNames());
  if (const std::vector<std::string> silent = layout->Silent();
      options.all_must_answer && !silent.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("without an answer: ", absl::StrJoin(silent, ", ")));
  }
  SHOAL_RETURN_IF_ERROR(layout->CutCells(options.has_local));
  if (options.audits) {
    SHOAL_RETURN_IF_ERROR(layout->CheckAuditable());
  }
  return layout;
}

void PoolLayout::Dial(const Manifest& manifest, const Options& options) {
  v1::Hello hello;
  *hello.mutable_terms() = MakeTerms(manifest, options.arithmetic);
  hello.set_epoch(plan_.epoch);
  for (const PoolNode& planned : plan_.remote()) {
    nodes_.push_back(std::make_unique<RemoteNode>(
        planned,
        NodeLink::Options{planned.address,
                          MaxMessageBytes(sizes_),
                          {options.own, ChannelSecurity::Peer::kNode, planned.name}},
        hello, sizes_.whole(),
        [this] {
          MutexLock lock(&mutex_);
          changed_.NotifyAll();
        },
        options.log, clock_));
  }
}

absl::Status PoolLayout::AwaitAnswers(const Options& options) {
  absl::Time give_up = clock_.Now() + options.connect_wait;
  bool covered = false;
  absl::Time next_try = clock_.Now();
  while (!AllAnswered() && clock_.Now() < give_up) {
    if (options.stop.stop_requested()) {
      return absl::CancelledError("cancelled while nodes were asked");
    }
    if (!covered && !options.all_must_answer && AnswersCover(options.has_local)) {
      covered = true;
      give_up = std::min(give_up, clock_.Now() + options.grace_wait);
    }
    if (clock_.Now() >= next_try) {
      next_try = clock_.Now() + kTryAgain;
      Tend();
    }
    MutexLock lock(&mutex_);
    changed_.WaitWithTimeout(&mutex_, kLookAgain);
  }
  return absl::OkStatus();
}

bool PoolLayout::AllAnswered() const {
  return std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node->state() != NodeState::kLost || !node->Refusal().ok();
  });
}

bool PoolLayout::AnswersCover(bool has_local) const {
  std::vector<ExpertSlice> held;
  for (const auto& node : nodes_) {
    if (node->state() != NodeState::kLost) {
      const std::vector<ExpertSlice> slices = node->slices();
      held.insert(held.end(), slices.begin(), slices.end());
    }
  }
  return has_local || Uncovered(sizes_.whole(), held).empty();
}

absl::Status PoolLayout::CheckNames() const {
  std::map<std::string, std::string> addresses;
  for (const auto& node : nodes_) {
    SHOAL_RETURN_IF_ERROR(node->Refusal());
    const auto [it, is_new] = addresses.emplace(node->name(), node->address());
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("two nodes call themselves ", node->name(),
                                                     ": ", it->second, " and ", node->address(),
                                                     "; start one with another --name"));
    }
  }
  return absl::OkStatus();
}

absl::Status PoolLayout::CutCells(bool has_local) {
  const ExpertSlice whole = sizes_.whole();
  std::vector<Holdings> holdings;
  for (const auto& node : nodes_) {
    SHOAL_RETURN_IF_ERROR(CheckSlices(whole, node->planned().stored(), node->name()));
    Holdings held{node->slices(), node->planned().slices};
    if (held.slices.empty()) {
      // It has not answered yet; what the plan gives it, it will have when it does.
      held.slices = node->planned().stored();
    }
    holdings.push_back(std::move(held));
  }
  const PoolNode* own = plan_.coordinator();
  if (own != nullptr) {
    holdings.push_back({{whole}, own->slices});
  }
  cells_ = MakeCells(whole, holdings);
  // A request names each of its cells, and nodes take no more slices at once.
  if (cells_.size() > static_cast<size_t>(RequestRules::kMaxSlices)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the slices of the nodes cross each other so that the experts fall into ", cells_.size(),
        " parts; at most ", RequestRules::kMaxSlices, " are accepted: shard by a simpler plan"));
  }
  if (has_local && own == nullptr) {
    for (Cell& cell : cells_) {
      cell.holders.push_back(nodes_.size());
    }
  }
  return CheckCoverage();
}

std::vector<std::string> PoolLayout::Silent() const {
  std::vector<std::string> silent;
  for (const auto& node : nodes_) {
    if (node->state() == NodeState::kLost) {
      silent.push_back(absl::StrCat(node->name(), " at ", node->address(), " (",
                                    node->Status().last_error, ")"));
    }
  }
  return silent;
}

absl::Status PoolLayout::CheckCoverage() const {
  for (const Cell& cell : cells_) {
    const bool held = std::any_of(cell.holders.begin(), cell.holders.end(), [this](size_t holder) {
      return holder == nodes_.size() || nodes_[holder]->state() != NodeState::kLost;
    });
    if (!held) {
      const std::vector<std::string> silent = Silent();
      return absl::UnavailableError(absl::StrCat(
          "no node holds ", FormatSlice(cell.slice),
          silent.empty() ? "; add a node that does, or make the partitions again"
                         : absl::StrCat("; without an answer: ", absl::StrJoin(silent, ", "))));
    }
  }
  return absl::OkStatus();
}

absl::Status PoolLayout::CheckAuditable() const {
  for (const Cell& cell : cells_) {
    if (cell.holders.size() == 1 && cell.holders.front() < nodes_.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--audit: node ", nodes_[cell.holders.front()]->name(), " alone holds ",
          FormatSlice(cell.slice),
          ", so that nobody can check it: plan the pool with --copies 2, or let the coordinator "
          "read experts itself (without --pool-alone)"));
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const std::vector<Cell>> PoolLayout::Cells() const {
  std::vector<bool> asked;
  for (const auto& node : nodes_) {
    asked.push_back(node->state() == NodeState::kLive);
  }
  const bool all_live = std::find(asked.begin(), asked.end(), false) == asked.end();
  // A coordinator that merely stands in is the last that is asked.
  asked.push_back(plan_.coordinator() != nullptr);
  MutexLock lock(&mutex_);
  if (shared_out_ == nullptr || asked != asked_) {
    std::vector<Cell> cells = cells_;
    if (!all_live) {
      std::vector<Cell> balanced = BalanceLoad(sizes_.whole(), cells_, asked);
      if (balanced.size() <= static_cast<size_t>(RequestRules::kMaxSlices)) {
        cells = std::move(balanced);
      }
    }
    shared_out_ = std::make_shared<const std::vector<Cell>>(std::move(cells));
    asked_ = std::move(asked);
  }
  return shared_out_;
}

int64_t PoolLayout::RowsAtOnce() const {
  int64_t rows = kMaxRows;
  for (const auto& node : nodes_) {
    const int64_t limit = node->max_rows();
    rows = limit > 0 ? std::min(rows, limit) : rows;
  }
  return rows;
}

void PoolLayout::Tend() {
  std::for_each(nodes_.begin(), nodes_.end(), [](const auto& node) { node->Tend(); });
}

RemoteNode* PoolLayout::Find(absl::string_view name) const {
  const auto it = std::find_if(nodes_.begin(), nodes_.end(),
                               [name](const auto& node) { return node->name() == name; });
  return it == nodes_.end() ? nullptr : it->get();
}

void PoolLayout::KeepVerdicts(const PoolLayout& other) {
  for (const auto& node : nodes_) {
    const RemoteNode* before = other.Find(node->name());
    if (before != nullptr && before->drained()) {
      node->SetDrained(true);
    }
    if (const std::string evidence = before == nullptr ? "" : before->evidence();
        !evidence.empty()) {
      node->Quarantine(evidence);
    }
  }
}

absl::Status PoolLayout::CheckDispensable(const RemoteNode& node) const {
  const auto stands_in = [this, &node](size_t holder) {
    return holder == nodes_.size() ||
           (nodes_[holder].get() != &node && (nodes_[holder]->state() == NodeState::kLive ||
                                              nodes_[holder]->state() == NodeState::kSuspect));
  };
  for (const Cell& cell : cells_) {
    const bool holds = std::any_of(cell.holders.begin(), cell.holders.end(), [&](size_t holder) {
      return holder < nodes_.size() && nodes_[holder].get() == &node;
    });
    if (holds && std::none_of(cell.holders.begin(), cell.holders.end(), stands_in)) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", node.name(), " alone holds ", FormatSlice(cell.slice),
                       " of those that answer: answers would stop without it. Start the other "
                       "holders, or plan the pool with --copies 2"));
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal

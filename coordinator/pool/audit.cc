#include "coordinator/pool/audit.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/random/distributions.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "coordinator/pool/remote_node.h"

namespace shoal {
namespace {

constexpr char kThisProcess[] = "the coordinator";

// The same work for some of the holders, by their index, and of these for those that can be asked
// now: an audit waits for nobody.
std::vector<Cell> CellsOf(const LayerCallPool& pool, const std::function<bool(size_t)>& may) {
  std::vector<Cell> cells(pool.cells.begin(), pool.cells.end());
  for (Cell& cell : cells) {
    std::erase_if(cell.holders, [&](size_t holder) {
      return holder == pool.nodes.size() || !may(holder) ||
             !CanBeAsked(pool.nodes[holder]->state());
    });
  }
  return cells;
}

// A question put to some nodes of a pool.
class Inquiry {
 public:
  Inquiry(const LayerCallPool& pool, const ExpertBackend::Batch& batch,
          std::span<const ExpertSlice> slices, const std::function<bool(size_t)>& may,
          const std::stop_token& stop)
      : cells_(CellsOf(pool, may)),
        pool_{pool.nodes,           cells_,       pool.epoch,     nullptr, pool.clock,
              absl::ZeroDuration(), pool.next_id, pool.superseded},
        slices_(slices),
        call_(pool_, batch, slices, stop),
        sums_(batch.rows.size()) {}

  //   UNAVAILABLE  none of them can compute it now
  absl::Status Run() {
    for (const Cell& cell : cells_) {
      const bool asked = std::any_of(slices_.begin(), slices_.end(), [&cell](const auto& slice) {
        return !Intersect(slice, cell.slice).empty();
      });
      if (asked && cell.holders.empty()) {
        return absl::UnavailableError(absl::StrCat("nobody else holds ", FormatSlice(cell.slice)));
      }
    }
    SHOAL_RETURN_IF_ERROR(call_.Run());
    call_.Collect(sums_);
    return absl::OkStatus();
  }

  // After Run returned OK.
  const std::vector<int64_t>& sums() const { return sums_; }
  std::vector<NodeAnswer> Answers() const { return call_.Answers(); }

 private:
  const std::vector<Cell> cells_;
  const LayerCallPool pool_;
  const std::span<const ExpertSlice> slices_;
  LayerCall call_;
  std::vector<int64_t> sums_;
};

// What a node said and what somebody else did, where they differ.
std::string Evidence(const ExpertBackend::Batch& batch, const NodeAnswer& answer,
                     absl::string_view node, std::span<const int64_t> other,
                     absl::string_view who) {
  size_t differ = 0;
  size_t first = 0;
  for (size_t i = other.size(); i-- > 0;) {
    if (answer.sums[i] != other[i]) {
      ++differ;
      first = i;
    }
  }
  const size_t hidden_size = batch.rows.size() / static_cast<size_t>(batch.num_rows);
  return absl::StrCat("layer ", batch.layer, ", ",
                      absl::StrJoin(answer.slices, ", ",
                                    [](std::string* out, const ExpertSlice& slice) {
                                      out->append(FormatSlice(slice));
                                    }),
                      ": ", differ, " of ", other.size(), " sums differ; that of row ",
                      first / hidden_size, ", column ", first % hidden_size, " is ",
                      answer.sums[first], " by node ", node, " and ", other[first], " by ", who);
}

bool IsSame(const NodeAnswer& answer, const std::vector<int64_t>& sums) {
  return std::equal(answer.sums.begin(), answer.sums.end(), sums.begin(), sums.end());
}

}  // namespace

// One answer that is checked.
class Audit::Case {
 public:
  Case(const Audit& audit, const LayerCallPool& pool, const ExpertBackend::Batch& batch,
       const NodeAnswer& answer, const std::stop_token& stop)
      : audit_(audit), pool_(pool), batch_(batch), answer_(answer), stop_(stop) {
    batch_.meanwhile = nullptr;
  }

  // Whether somebody is in quarantine for it.
  //   and the errors of those who should compute it again
  absl::StatusOr<bool> Try() {
    if (pool_.local != nullptr) {
      std::vector<int64_t> sums(batch_.rows.size());
      const absl::Status status = pool_.local->Execute(batch_, answer_.slices, stop_, sums);
      if (status.ok()) {
        return JudgedHere(sums);
      }
    }
    return JudgedByOthers();
  }

 private:
  RemoteNode& NodeOf(const NodeAnswer& answer) const { return *pool_.nodes[answer.node]; }

  std::string EvidenceAgainst(const NodeAnswer& answer, std::span<const int64_t> other,
                              absl::string_view who) const {
    return Evidence(batch_, answer, NodeOf(answer).name(), other, who);
  }

  bool JudgedHere(const std::vector<int64_t>& sums) {
    NodeOf(answer_).OnAudit();
    if (IsSame(answer_, sums)) {
      return false;
    }
    audit_.Quarantine(NodeOf(answer_), EvidenceAgainst(answer_, sums, kThisProcess));
    return true;
  }

  absl::StatusOr<bool> JudgedByOthers() {
    Inquiry others(
        pool_, batch_, answer_.slices, [this](size_t holder) { return holder != answer_.node; },
        stop_);
    SHOAL_RETURN_IF_ERROR(others.Run());
    NodeOf(answer_).OnAudit();
    if (IsSame(answer_, others.sums())) {
      return false;
    }
    std::vector<NodeAnswer> witnesses = others.Answers();
    const std::string names =
        absl::StrJoin(witnesses, " and ", [this](std::string* out, const NodeAnswer& witness) {
          absl::StrAppend(out, "node ", NodeOf(witness).name());
        });
    const std::string evidence = EvidenceAgainst(answer_, others.sums(), names);
    witnesses.push_back(answer_);
    bool found = false;
    for (const NodeAnswer& witness : witnesses) {
      found = ContradictsItself(witness) || found;
    }
    for (const NodeAnswer& witness : witnesses) {
      if (!found) {
        audit_.Quarantine(NodeOf(witness),
                          absl::StrCat(evidence,
                                       "; each says so twice, so that one of them is "
                                       "wrong and nobody can tell which (a coordinator "
                                       "with the whole container can)"));
      }
    }
    return true;
  }

  // Sound nodes give the same bits whenever they are asked. One that cannot be asked did not
  // contradict itself.
  bool ContradictsItself(const NodeAnswer& answer) {
    Inquiry again(
        pool_, batch_, answer.slices, [&answer](size_t holder) { return holder == answer.node; },
        stop_);
    if (!again.Run().ok() || IsSame(answer, again.sums())) {
      return false;
    }
    audit_.Quarantine(NodeOf(answer), EvidenceAgainst(answer, again.sums(),
                                                      "the same node when it was asked again"));
    return true;
  }

  const Audit& audit_;
  const LayerCallPool& pool_;
  ExpertBackend::Batch batch_;
  const NodeAnswer& answer_;
  const std::stop_token stop_;
};

Audit::Audit(double share, Log log) : share_(share), log_(std::move(log)) {}

absl::StatusOr<bool> Audit::FindsWrong(const LayerCallPool& pool, const ExpertBackend::Batch& batch,
                                       std::span<const NodeAnswer> answers,
                                       const std::stop_token& stop) {
  bool found = false;
  for (const NodeAnswer& answer : answers) {
    if (!IsDrawn()) {
      continue;
    }
    const absl::StatusOr<bool> wrong = Case(*this, pool, batch, answer, stop).Try();
    if (stop.stop_requested()) {
      return absl::CancelledError("cancelled during an audit");
    }
    found = found || wrong.value_or(false);
  }
  return found;
}

bool Audit::IsDrawn() {
  MutexLock lock(&mutex_);
  return absl::Bernoulli(chance_, share_);
}

void Audit::Quarantine(RemoteNode& node, const std::string& evidence) const {
  node.Quarantine(evidence);
  if (log_) {
    log_(absl::StrCat("audit: node ", node.name(), " at ", node.address(),
                      " computed a wrong result and is in quarantine; what it gave before may be "
                      "wrong too. ",
                      evidence));
  }
}

}  // namespace shoal

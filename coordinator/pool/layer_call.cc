#include "coordinator/pool/layer_call.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/slice_message.h"
#include "kernels/fixed_point.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// How often a part that nobody can do looks for a node that has come back.
constexpr absl::Duration kLookAgain = absl::Milliseconds(100);

constexpr size_t kNobody = static_cast<size_t>(-1);
constexpr int kCannot = 4;  // rank of a holder that is not to be asked

// How many deadlines, which are far beyond what a node needs as a rule, an answer may take that nobody
// else can give.
constexpr int kMostDeadlines = 10;

// Errors that every sound holder gives alike. One that is not sound may say them too, so another is
// asked where there is one.
bool IsOfTheBatch(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsOutOfRange(status);
}

}  // namespace

// A reply, and when it came: this thread may have been busy.
struct LayerCall::Letter {
  Part* part;
  Reply reply;
  absl::Time arrival;
};

// Where replies are put by the threads of gRPC; outlives the call, because they may come late.
struct LayerCall::Mailbox {
  Mutex mutex;
  CondVar changed;
  std::vector<Letter> mail ABSL_GUARDED_BY(mutex);
};

struct LayerCall::Part {
  std::vector<size_t> cells;
  const Part* above = nullptr;
  size_t holder = kNobody;  // kNobody: waits for one
  uint64_t id = 0;          // of the request
  bool outstanding = false;
  absl::Status failure;  // the holder's; it is not asked again
  absl::Time since;      // sent, or waiting
  absl::Time deadline = absl::InfiniteFuture();
  std::unique_ptr<v1::LayerReply> reply;
  std::vector<int64_t> sums;  // of `local`
  std::vector<std::unique_ptr<Part>> below;

  bool HasSums() const { return reply != nullptr || !sums.empty(); }
  bool Done() const {
    return HasSums() || (!below.empty() && std::all_of(below.begin(), below.end(),
                                                       [](const auto& p) { return p->Done(); }));
  }
  std::span<const int64_t> Sums() const {
    return reply == nullptr ? std::span<const int64_t>(sums)
                            : std::span<const int64_t>(reply->sums().data(),
                                                       static_cast<size_t>(reply->sums_size()));
  }
  void Collect(std::span<int64_t> out) const {
    if (HasSums()) {
      AddSums(Sums(), out);
    } else {
      for (const auto& part : below) {
        part->Collect(out);
      }
    }
  }
};

LayerCall::LayerCall(const LayerCallPool& pool, const ExpertBackend::Batch& batch,
                     std::span<const ExpertSlice> slices, std::stop_token stop)
    : pool_(pool),
      batch_(batch),
      slices_(slices),
      stop_(std::move(stop)),
      meanwhile_(batch.meanwhile),
      mailbox_(std::make_shared<Mailbox>()),
      root_(std::make_unique<Part>()) {
  cost_.layer = batch.layer;
}

LayerCall::~LayerCall() {
  for (const Part* part : parts_) {
    if (part->outstanding) {
      pool_.nodes[part->holder]->link().Forget(part->id);
    }
  }
}

absl::Status LayerCall::Run() {
  const std::stop_callback wake(stop_, [mailbox = mailbox_] {
    MutexLock lock(&mailbox->mutex);
    mailbox->changed.NotifyAll();
  });
  root_->cells = WantedCells();
  if (!root_->cells.empty()) {
    SHOAL_RETURN_IF_ERROR(Distribute(root_->cells, *root_));
  }
  DoMeanwhile();
  if (root_->cells.empty()) {
    return absl::OkStatus();
  }
  while (!root_->Done()) {
    SHOAL_RETURN_IF_ERROR(WaitForMail());
    SHOAL_RETURN_IF_ERROR(CheckTimes());
  }
  return absl::OkStatus();
}

void LayerCall::Collect(std::span<int64_t> out) const { root_->Collect(out); }

std::vector<NodeAnswer> LayerCall::Answers() const {
  std::vector<NodeAnswer> answers;
  AppendAnswers(*root_, answers);
  return answers;
}

void LayerCall::AppendAnswers(const Part& part, std::vector<NodeAnswer>& answers) const {
  if (part.reply != nullptr) {
    answers.push_back({part.holder, SlicesOf(part), part.Sums()});
  } else if (part.sums.empty()) {
    for (const auto& below : part.below) {
      AppendAnswers(*below, answers);
    }
  }
}

// Those with something that is wanted, and an expert that a row chose.
std::vector<size_t> LayerCall::WantedCells() const {
  std::vector<size_t> wanted;
  for (size_t i = 0; i < pool_.cells.size(); ++i) {
    const ExpertSlice& slice = pool_.cells[i].slice;
    const bool chosen =
        std::any_of(batch_.expert_ids.begin(), batch_.expert_ids.end(), [&slice](int32_t expert) {
          return expert >= slice.experts.begin && expert < slice.experts.end;
        });
    const bool asked = std::any_of(slices_.begin(), slices_.end(), [&slice](const auto& s) {
      return !Intersect(s, slice).empty();
    });
    if (chosen && asked) {
      wanted.push_back(i);
    }
  }
  return wanted;
}

// The best that is not at work on the cell already and has not failed at it; of equals the first.
std::optional<size_t> LayerCall::ChooseHolder(size_t cell, const Part& above) const {
  std::set<size_t> tried;
  for (const Part* part = &above; part != nullptr; part = part->above) {
    if (part->outstanding || !part->failure.ok()) {
      tried.insert(part->holder);
    }
  }
  std::optional<size_t> best;
  int best_rank = kCannot;
  for (const size_t holder : pool_.cells[cell].holders) {
    const int rank = tried.contains(holder) ? kCannot : RankOf(holder, pool_.cells[cell]);
    if (rank < best_rank) {
      best = holder;
      best_rank = rank;
    }
  }
  return best;
}

// A live node, or this process where the cell is its own by the plan; else this process; else a node
// under suspicion, else one that is drained.
int LayerCall::RankOf(size_t holder, const Cell& cell) const {
  if (holder == pool_.nodes.size()) {
    return cell.holders.front() == holder ? 0 : 1;
  }
  const RemoteNode& node = *pool_.nodes[holder];
  if (node.max_rows() < batch_.num_rows) {
    return kCannot;  // it came back with less memory (TooManyRows)
  }
  switch (node.state()) {
    case NodeState::kLive:
      return 0;
    case NodeState::kSuspect:
      return 2;
    case NodeState::kDrained:
      return 3;
    case NodeState::kQuarantined:
    case NodeState::kLost:
      return kCannot;
  }
  return kCannot;
}

absl::Status LayerCall::Distribute(const std::vector<size_t>& cells, Part& above) {
  std::map<size_t, std::vector<size_t>> by_holder;
  for (const size_t cell : cells) {
    by_holder[ChooseHolder(cell, above).value_or(kNobody)].push_back(cell);
  }
  std::vector<Part*> unsent;
  Part* here = nullptr;
  for (auto& [holder, its_cells] : by_holder) {
    above.below.push_back(std::make_unique<Part>());
    Part& part = *above.below.back();
    part.cells = std::move(its_cells);
    part.above = &above;
    part.holder = holder;
    // Who has waited goes on waiting from the same moment.
    const bool waits_on = holder == kNobody && above.holder == kNobody && &above != root_.get();
    part.since = waits_on ? above.since : pool_.clock.Now();
    parts_.push_back(&part);
    if (holder == pool_.nodes.size()) {
      here = &part;
    } else if (holder != kNobody && !Send(part)) {
      unsent.push_back(&part);
    }
  }
  // Only now: every other machine is at work.
  if (here != nullptr) {
    SHOAL_RETURN_IF_ERROR(ComputeHere(*here));
  }
  for (Part* part : unsent) {
    SHOAL_RETURN_IF_ERROR(Distribute(part->cells, *part));
  }
  return absl::OkStatus();
}

std::vector<ExpertSlice> LayerCall::SlicesOf(const Part& part) const {
  std::vector<ExpertSlice> slices;
  for (const size_t cell : part.cells) {
    for (const ExpertSlice& wanted : slices_) {
      const ExpertSlice common = Intersect(pool_.cells[cell].slice, wanted);
      if (!common.empty()) {
        slices.push_back(common);
      }
    }
  }
  return slices;
}

bool LayerCall::Send(Part& part) {
  RemoteNode& node = *pool_.nodes[part.holder];
  auto request = std::make_shared<v1::ExecuteRequest>();
  v1::LayerRequest& layer = *request->mutable_layer();
  part.id = pool_.next_id.fetch_add(1);
  layer.set_id(part.id);
  layer.set_epoch(pool_.epoch);
  layer.set_layer(static_cast<uint32_t>(batch_.layer));
  layer.set_call(batch_.call);
  for (const ExpertSlice& slice : SlicesOf(part)) {
    ToMessage(slice, layer.add_slices());
  }
  layer.mutable_rows()->Add(batch_.rows.begin(), batch_.rows.end());
  layer.mutable_expert_ids()->Add(batch_.expert_ids.begin(), batch_.expert_ids.end());
  layer.mutable_expert_weights()->Add(batch_.expert_weights.begin(), batch_.expert_weights.end());
  part.deadline = part.since + node.DeadlineFor(batch_.num_rows);
  part.outstanding = node.link().Send(
      std::move(request), [mailbox = mailbox_, &part, &clock = pool_.clock](Reply reply) {
        MutexLock lock(&mailbox->mutex);
        mailbox->mail.push_back({&part, std::move(reply), clock.Now()});
        mailbox->changed.NotifyAll();
      });
  return part.outstanding;
}

void LayerCall::DoMeanwhile() {
  if (const std::function<void()> todo = std::exchange(meanwhile_, nullptr)) {
    todo();
  }
}

absl::Status LayerCall::ComputeHere(Part& part) {
  std::vector<int64_t> sums(batch_.rows.size());
  ExpertBackend::Batch batch = batch_;
  batch.meanwhile = [this] { DoMeanwhile(); };
  const absl::Status status = pool_.local->Execute(batch, SlicesOf(part), stop_, sums);
  if (absl::IsDataLoss(status)) {
    part.failure = status;
    return Distribute(part.cells, part);
  }
  SHOAL_RETURN_IF_ERROR(status);
  part.sums = std::move(sums);
  return absl::OkStatus();
}

absl::Status LayerCall::WaitForMail() {
  std::vector<Letter> mail;
  const absl::Time begin = pool_.clock.Now();
  {
    MutexLock lock(&mailbox_->mutex);
    if (mailbox_->mail.empty() && !stop_.stop_requested()) {
      const absl::Duration left = NextLook() - begin;
      mailbox_->changed.WaitWithTimeout(&mailbox_->mutex, std::max(left, absl::ZeroDuration()));
    }
    mail.swap(mailbox_->mail);
  }
  cost_.wait_time += pool_.clock.Now() - begin;
  if (stop_.stop_requested()) {
    return absl::CancelledError("cancelled while nodes computed");
  }
  for (Letter& letter : mail) {
    SHOAL_RETURN_IF_ERROR(OnReply(letter));
  }
  return absl::OkStatus();
}

absl::Status LayerCall::OnReply(Letter& letter) {
  Part& part = *letter.part;
  Reply& reply = letter.reply;
  part.outstanding = false;
  RemoteNode& node = *pool_.nodes[part.holder];
  if (reply.ok() && (*reply)->has_error()) {
    const v1::Error& error = (*reply)->error();
    node.OnFailure();
    part.failure =
        Annotate(ErrorFromWire(error.code(), error.message()), absl::StrCat("node ", node.name()));
  } else if (reply.ok() && static_cast<size_t>((*reply)->sums_size()) != batch_.rows.size()) {
    part.failure =
        absl::InternalError(absl::StrCat("node ", node.name(), " sent ", (*reply)->sums_size(),
                                         " sums where ", batch_.rows.size(), " were asked for"));
  } else if (reply.ok()) {
    if (part.below.empty()) {
      node.OnReply(batch_.num_rows, letter.arrival - part.since, (*reply)->cost());
    }
    const v1::LayerCost& cost = (*reply)->cost();
    cost_.expert_hits += cost.expert_hits();
    cost_.expert_misses += cost.expert_misses();
    cost_.expert_reads += cost.expert_reads();
    cost_.expert_bytes += cost.expert_bytes();
    part.reply = *std::move(reply);
    first_loss_ = absl::InfiniteFuture();
    return absl::OkStatus();
  }
  if (!part.below.empty()) {
    return absl::OkStatus();  // others do it
  }
  if (const absl::Status& why = reply.ok() ? part.failure : reply.status(); IsOfTheBatch(why)) {
    part.failure = why;
    return IsReplaceable(part) ? Distribute(part.cells, part) : why;
  }
  first_loss_ = std::min(first_loss_, pool_.clock.Now());
  if (pool_.clock.Now() - first_loss_ > pool_.node_wait) {
    return absl::UnavailableError(
        absl::StrCat("nothing but lost requests for ", absl::FormatDuration(pool_.node_wait), ": ",
                     (reply.ok() ? part.failure : reply.status()).message()));
  }
  return Distribute(part.cells, part);
}

absl::Status LayerCall::CheckTimes() {
  const absl::Time now = pool_.clock.Now();
  // By index: parts are added on the way.
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = *parts_[i];
    if (part.Done() || !part.below.empty()) {
      continue;
    }
    if (part.outstanding && now >= part.deadline) {
      SHOAL_RETURN_IF_ERROR(Hedge(part, now));
    } else if (part.holder == kNobody) {
      SHOAL_RETURN_IF_ERROR(LookForHolder(part, now));
    }
  }
  return absl::OkStatus();
}

// The node is late: others do its part too, where there are others for all of it.
absl::Status LayerCall::Hedge(Part& part, absl::Time now) {
  RemoteNode& node = *pool_.nodes[part.holder];
  if (IsReplaceable(part)) {
    node.OnMissedDeadline();
    return Distribute(part.cells, part);
  }
  SHOAL_RETURN_IF_ERROR(CheckPlanInForce());
  if (IsStuck(part)) {
    return NoAnswer(part, now);
  }
  part.deadline =
      std::min(now + node.DeadlineFor(batch_.num_rows), std::max(LastTime(part), now + kLookAgain));
  return absl::OkStatus();
}

bool LayerCall::IsStuck(const Part& part) const {
  return pool_.nodes[part.holder]->link().view().last_heard >= LastTime(part);
}

absl::Time LayerCall::LastTime(const Part& part) const {
  const absl::Duration deadline = pool_.nodes[part.holder]->DeadlineFor(batch_.num_rows);
  return part.since + std::max(pool_.node_wait, kMostDeadlines * deadline);
}

absl::Status LayerCall::NoAnswer(const Part& part, absl::Time now) const {
  const RemoteNode& node = *pool_.nodes[part.holder];
  return absl::UnavailableError(absl::StrCat(
      "node ", node.name(), " at ", node.address(), " lives, but has not computed ",
      FormatSlice(SlicesOf(part).front()), " for ",
      absl::FormatDuration(absl::Trunc(now - part.since, absl::Milliseconds(1))),
      ", and nobody else can. Its disk may hang: see what it says, start it again and go on, or "
      "raise --node-wait"));
}

bool LayerCall::IsReplaceable(const Part& part) const {
  return std::all_of(part.cells.begin(), part.cells.end(),
                     [&](size_t cell) { return ChooseHolder(cell, part).has_value(); });
}

// Whether a holder is back that takes fewer rows than there are.
bool LayerCall::TooManyRows(const Part& part) const {
  const auto takes_fewer = [this](size_t holder) {
    return holder < pool_.nodes.size() && CanBeAsked(pool_.nodes[holder]->state()) &&
           pool_.nodes[holder]->max_rows() < batch_.num_rows;
  };
  return std::any_of(part.cells.begin(), part.cells.end(), [&](size_t cell) {
    const auto& holders = pool_.cells[cell].holders;
    return std::any_of(holders.begin(), holders.end(), takes_fewer);
  });
}

absl::Status LayerCall::LookForHolder(Part& part, absl::Time now) {
  const bool found = std::any_of(part.cells.begin(), part.cells.end(),
                                 [&](size_t cell) { return ChooseHolder(cell, part).has_value(); });
  if (found) {
    return Distribute(part.cells, part);
  }
  SHOAL_RETURN_IF_ERROR(CheckPlanInForce());
  if (TooManyRows(part)) {
    return absl::AbortedError("a node came back that takes fewer rows");
  }
  SHOAL_RETURN_IF_ERROR(CheckQuarantine(part));
  for (const Part* above = part.above; above != nullptr; above = above->above) {
    if (above->outstanding) {
      // Late, and its stand-in failed; but it may answer yet, or the stand-in come back.
      return IsStuck(*above) && now - part.since >= pool_.node_wait ? NoAnswer(*above, now)
                                                                    : absl::OkStatus();
    }
  }
  for (const Part* above = part.above; above != nullptr; above = above->above) {
    if (!above->failure.ok()) {
      return Annotate(above->failure,
                      absl::StrCat("no other holder of ", FormatSlice(SlicesOf(part).front())));
    }
  }
  if (now - part.since >= pool_.node_wait) {
    return absl::UnavailableError(
        absl::StrCat("nobody has computed ", FormatSlice(SlicesOf(part).front()), " for ",
                     absl::FormatDuration(pool_.node_wait), "; held by ", Holders(part),
                     ". Start the node again and go on, or raise --node-wait"));
  }
  return absl::OkStatus();
}

// Such a node does not come back by itself, so that there is nothing to wait for.
absl::Status LayerCall::CheckQuarantine(const Part& part) const {
  const auto in_quarantine = [this](size_t holder) {
    return holder < pool_.nodes.size() && pool_.nodes[holder]->state() == NodeState::kQuarantined;
  };
  for (const size_t cell : part.cells) {
    const std::vector<size_t>& holders = pool_.cells[cell].holders;
    if (std::all_of(holders.begin(), holders.end(), in_quarantine)) {
      return absl::UnavailableError(
          absl::StrCat(FormatSlice(pool_.cells[cell].slice), " are held only by ", Holders(part),
                       ", in quarantine because of wrong results. See `shoal cluster status`; have "
                       "another node hold them, or take the node back once it is mended "
                       "(`shoal cluster drain NODE --undo`)"));
    }
  }
  return absl::OkStatus();
}

absl::Status LayerCall::CheckPlanInForce() const {
  return pool_.superseded ? absl::AbortedError("another plan is in force") : absl::OkStatus();
}

absl::Time LayerCall::NextLook() const {
  absl::Time next = absl::InfiniteFuture();
  for (const Part* part : parts_) {
    if (part->Done() || !part->below.empty()) {
      continue;
    }
    next =
        std::min(next, part->holder == kNobody ? pool_.clock.Now() + kLookAgain : part->deadline);
  }
  return next;
}

std::string LayerCall::Holders(const Part& part) const {
  std::set<std::string> names;
  for (const size_t cell : part.cells) {
    for (const size_t holder : pool_.cells[cell].holders) {
      if (holder < pool_.nodes.size()) {
        names.insert(
            absl::StrCat(pool_.nodes[holder]->name(), " (", pool_.nodes[holder]->address(), ")"));
      }
    }
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace shoal

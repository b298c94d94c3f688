#include "coordinator/pool/remote_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/status/status_macros.h"
#include "expert_node/service/slice_message.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// A node that answers no ping for so long is taken for dead. Nothing else arrives while a large
// message does: that may take as long as on a slow wireless link.
constexpr absl::Duration kSilence = absl::Seconds(3);
constexpr double kSlowestBytesPerSecond = 1e6;
constexpr absl::Duration kHeartbeat = absl::Seconds(1);

// Whoever refuses the greeting with these will refuse it again until something is changed there;
// every other end of a stream may be the machine or the network.
bool IsRefusal(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) || absl::IsUnimplemented(status);
}

}  // namespace

RemoteNode::RemoteNode(PoolNode planned, NodeLink::Options link, const v1::Hello& hello,
                       const ExpertSlice& whole, std::function<void()> on_change,
                       std::function<void(absl::string_view line)> log, const Clock& clock)
    : planned_(std::move(planned)),
      whole_(whole),
      on_change_(std::move(on_change)),
      log_(std::move(log)),
      clock_(clock),
      name_(planned_.name.empty() ? planned_.address : planned_.name),
      link_(std::make_unique<NodeLink>(
          std::move(link), hello, [this] { OnLinkChange(); }, clock)) {}

RemoteNode::~RemoteNode() {
  MutexLock lock(&mutex_);
  closing_ = true;  // the end of the stream that follows is no news
}

std::string RemoteNode::name() const {
  MutexLock lock(&mutex_);
  return name_;
}

absl::Status RemoteNode::Refusal() const {
  MutexLock lock(&mutex_);
  return refusal_;
}

NodeState RemoteNode::state() const {
  // The link knows first.
  const bool open = link_->view().open;
  MutexLock lock(&mutex_);
  return StateWith(open);
}

NodeState RemoteNode::StateWith(bool open) const {
  if (!evidence_.empty()) {
    return NodeState::kQuarantined;  // also while it is away: that is no way out
  }
  if (!open || !refusal_.ok()) {
    return NodeState::kLost;
  }
  return drained_ ? NodeState::kDrained : health_.StateAt(clock_.Now());
}

std::vector<ExpertSlice> RemoteNode::slices() const {
  MutexLock lock(&mutex_);
  return slices_;
}

int64_t RemoteNode::max_rows() const {
  MutexLock lock(&mutex_);
  return max_rows_;
}

void RemoteNode::Tend() {
  const NodeLink::View view = link_->view();
  const absl::Duration silence = clock_.Now() - view.last_heard;
  if (!view.under_way) {
    link_->Open();
  } else if (silence > kSilence + absl::Seconds(static_cast<double>(view.bytes_in_flight) /
                                                kSlowestBytesPerSecond) ||
             !link_->CheckPeer().ok()) {
    link_->Break();  // a node that is revoked is refused, with the reason, when it is dialled next
  } else if (view.open && silence >= kHeartbeat / 2) {
    link_->Ping();
  }
}

absl::Duration RemoteNode::DeadlineFor(int64_t num_rows) const {
  MutexLock lock(&mutex_);
  return deadline_.For(num_rows);
}

void RemoteNode::OnReply(int64_t num_rows, absl::Duration latency, const v1::LayerCost& cost) {
  MutexLock lock(&mutex_);
  ++requests_;
  deadline_.Add(num_rows, latency);
  work_.round_trip += latency;
  work_.execute += absl::Nanoseconds(cost.execute_ns());
  work_.disk_wait += absl::Nanoseconds(cost.wait_ns());
  work_.queue += absl::Nanoseconds(cost.queue_ns());
  work_.expert_hits += cost.expert_hits();
  work_.expert_misses += cost.expert_misses();
  work_.expert_bytes += cost.expert_bytes();
}

void RemoteNode::SetDrained(bool drained) {
  MutexLock lock(&mutex_);
  drained_ = drained;
  if (!drained) {
    evidence_.clear();
  }
}

void RemoteNode::OnAudit() {
  MutexLock lock(&mutex_);
  ++audits_;
}

void RemoteNode::Quarantine(const std::string& evidence) {
  MutexLock lock(&mutex_);
  if (evidence_.empty()) {
    evidence_ = evidence;
  }
}

std::string RemoteNode::evidence() const {
  MutexLock lock(&mutex_);
  return evidence_;
}

void RemoteNode::OnMissedDeadline() {
  MutexLock lock(&mutex_);
  ++hedges_;
  health_.OnMissedDeadline(clock_.Now());
}

bool RemoteNode::drained() const {
  MutexLock lock(&mutex_);
  return drained_;
}

void RemoteNode::OnFailure() {
  MutexLock lock(&mutex_);
  ++failures_;
}

PoolNodeStatus RemoteNode::Status() const {
  const NodeLink::View view = link_->view();
  MutexLock lock(&mutex_);
  PoolNodeStatus status;
  status.name = name_;
  status.address = planned_.address;
  status.state = StateWith(view.open);
  status.last_error = std::string((refusal_.ok() ? view.last_error : refusal_).message());
  status.slices = slices_;
  status.computes = planned_.slices;
  status.read_bytes_per_second = view.node == nullptr ? 0 : view.node->read_bytes_per_second();
  status.work = work_;
  status.layer_p50 = deadline_.SingleRowPercentile(50);
  status.layer_p95 = deadline_.SingleRowPercentile(95);
  status.requests = requests_;
  status.hedges = hedges_;
  status.failures = failures_;
  status.losses = losses_;
  status.audits = audits_;
  status.evidence = evidence_;
  return status;
}

void RemoteNode::OnLinkChange() {
  const NodeLink::View view = link_->view();
  std::string news;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_.Now();
    if (view.open && view.node != nullptr) {
      refusal_ = Inspect(*view.node);
      health_.OnOpen(now);
    } else {
      refusal_ = IsRefusal(view.last_error) ? view.last_error : absl::OkStatus();
      losses_ += was_open_ ? 1 : 0;
      health_.OnLost(now);
    }
    was_open_ = view.open;
    news = News(view.open, view.last_error);
  }
  if (log_ && !news.empty()) {
    log_(news);
  }
  on_change_();
}

std::string RemoteNode::News(bool open, const absl::Status& error) {
  const std::string who = absl::StrCat("node ", name_, " at ", planned_.address);
  if (open && refusal_.ok()) {
    was_there_ = true;
    return std::exchange(trouble_, "").empty() ? "" : absl::StrCat(who, " is there again");
  }
  // A node's own words, so no more of them than a line holds.
  constexpr size_t kMostLetters = 300;
  const absl::Status& status = refusal_.ok() ? error : refusal_;
  const std::string why = status.message().empty()
                              ? "the stream ended"
                              : std::string(status.message().substr(0, kMostLetters));
  // How it begins is said when the pool connects. Afterwards each loss is news once, and so is every other
  // refusal; that it still does not answer is none.
  if (closing_ || !was_there_ || (!trouble_.empty() && (refusal_.ok() || trouble_ == why))) {
    return "";
  }
  trouble_ = why;
  return absl::StrCat(who, refusal_.ok() ? " is lost: " : " is refused: ", trouble_);
}

absl::Status RemoteNode::Inspect(const v1::DescribeReply& node) {
  std::string where = absl::StrCat("node ", name_, " at ", planned_.address);
  const auto wrong = [&where](absl::string_view what) {
    return absl::FailedPreconditionError(absl::StrCat(where, ": ", what));
  };
  const absl::StatusOr<std::vector<ExpertSlice>> slices = HoldingsOf(node, whole_);
  if (!slices.ok()) {
    return wrong(slices.status().message());
  }
  if (const absl::Status good = CheckNodeName(node.name(), "its name"); !good.ok()) {
    return wrong(good.message());
  }
  if (!planned_.name.empty() && node.name() != planned_.name) {
    return wrong(absl::StrCat("the node there calls itself ", node.name(),
                              "; start the right one there, or correct the plan's address"));
  }
  // In a mere list of addresses the first answer gave the name.
  if (planned_.name.empty() && name_ != planned_.address && node.name() != name_) {
    return wrong(absl::StrCat("it called itself so before, and ", node.name(),
                              " now; start it with --name ", name_));
  }
  name_ = node.name();
  where = absl::StrCat("node ", name_, " at ", planned_.address);
  if (slices->empty() || node.max_rows() == 0) {
    return wrong("it holds no experts yet");
  }
  const std::vector<ExpertSlice> planned = planned_.stored();
  for (const ExpertSlice& slice : planned.empty() ? slices_ : planned) {
    if (const auto missing = Uncovered(slice, *slices); !missing.empty()) {
      return wrong(
          absl::StrCat("it lacks ", FormatSlice(missing.front()),
                       planned.empty() ? ", which it held before" : ", which the plan gives it"));
    }
  }
  slices_ = *slices;
  max_rows_ = node.max_rows();
  return absl::OkStatus();
}

}  // namespace shoal

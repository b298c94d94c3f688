#include "coordinator/pool/link_probe.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "coordinator/pool/node_link.h"
#include "expert_node/expert_model.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

constexpr absl::Duration kWelcomeWithin = absl::Seconds(5);
constexpr absl::Duration kReplyWithin = absl::Seconds(60);
// Whoever waits looks up so often whether to stop.
constexpr absl::Duration kLookUp = absl::Milliseconds(100);

// What a message has beside its rows or sums.
constexpr uint64_t kMessageOverhead = uint64_t{1} << 20;
// An expert's sums with such a weight are beyond the fixed point range, so that the node answers
// with a short error: the one reply that is small whatever the request. Every other has the sums of
// all rows, and the two ways could not be told apart.
constexpr float kExcessiveWeight = 1e30F;

// Everything about one reply that the measurement needs.
struct Answer {
  absl::Duration way;   // round trip less what the node took
  absl::Duration work;  // of the node's: computing
};

// Who waits, and the callbacks of the link. Kept by both.
struct Mailbox {
  Mutex mutex;
  CondVar changed;
  bool has_reply ABSL_GUARDED_BY(mutex) = false;
  absl::Time arrived ABSL_GUARDED_BY(mutex);
  absl::StatusOr<std::unique_ptr<v1::LayerReply>> reply ABSL_GUARDED_BY(mutex) = nullptr;
};

class LinkProbe {
 public:
  LinkProbe(const Manifest& manifest, const std::string& address, const LinkProbeOptions& options,
            const Clock& clock, std::stop_token stop)
      : sizes_(ExpertSizes::FromManifest(manifest)),
        options_(options),
        clock_(clock),
        stop_(std::move(stop)),
        mailbox_(std::make_shared<Mailbox>()) {
    v1::Hello hello;
    *hello.mutable_terms() = MakeTerms(manifest);
    hello.set_epoch(1);
    const auto hidden = static_cast<uint64_t>(sizes_.layout.hidden_size);
    const uint64_t most_rows =
        std::max<uint64_t>(1, options.batch_bytes / (hidden * sizeof(float)));
    const auto chosen = static_cast<uint64_t>(sizes_.num_experts_per_token);
    const uint64_t max_message_bytes =
        most_rows * (hidden * sizeof(int64_t) + chosen * 2 * sizeof(int64_t)) + kMessageOverhead;
    most_rows_ = static_cast<int64_t>(most_rows);
    link_ = std::make_unique<NodeLink>(
        NodeLink::Options{address, max_message_bytes, options.security}, hello,
        [mailbox = mailbox_] {
          MutexLock lock(&mailbox->mutex);
          mailbox->changed.NotifyAll();
        },
        clock);
  }

  absl::StatusOr<LinkMeasurement> Run() {
    SHOAL_RETURN_IF_ERROR(Connect());
    LinkMeasurement result;
    result.name = link_->view().node->name();
    result.round_trips = options_.round_trips;
    SHOAL_RETURN_IF_ERROR(AskForSums(1).status());  // its record is in the cache from now on
    std::vector<absl::Duration> ways;
    std::vector<absl::Duration> works;
    ways.reserve(static_cast<size_t>(options_.round_trips));
    works.reserve(static_cast<size_t>(options_.round_trips));
    for (int64_t i = 0; i < options_.round_trips; ++i) {
      SHOAL_ASSIGN_OR_RETURN(const Answer answer, AskForSums(1));
      ways.push_back(answer.way);
      works.push_back(answer.work);
    }
    result.round_trip_p50 = PercentileOf(ways, 50);
    result.round_trip_p95 = PercentileOf(ways, 95);
    SHOAL_RETURN_IF_ERROR(MeasureBatches(PercentileOf(works, 50), result));
    return result;
  }

 private:
  absl::Status Connect() {
    link_->Open();
    const absl::Time give_up = clock_.Now() + kWelcomeWithin;
    NodeLink::View view = link_->view();
    while (!view.open && view.under_way && clock_.Now() < give_up && !stop_.stop_requested()) {
      MutexLock lock(&mailbox_->mutex);
      mailbox_->changed.WaitWithTimeout(&mailbox_->mutex, kLookUp);
      view = link_->view();
    }
    SHOAL_RETURN_IF_ERROR(CheckStop());
    if (!view.open) {
      return view.under_way || view.last_error.ok()
                 ? absl::UnavailableError(
                       absl::StrCat("no answer within ", absl::FormatDuration(kWelcomeWithin)))
                 : view.last_error;
    }
    SHOAL_ASSIGN_OR_RETURN(const std::vector<ExpertSlice> held,
                           HoldingsOf(*view.node, sizes_.whole()));
    if (held.empty() || view.node->max_rows() == 0) {
      return absl::FailedPreconditionError("it holds no experts yet");
    }
    const ExpertSlice& slice = held.front();
    unit_ = {{slice.units.begin, slice.units.begin + 1},
             {slice.experts.begin, slice.experts.begin + 1}};
    most_rows_ = std::min<int64_t>(most_rows_, view.node->max_rows());
    return absl::OkStatus();
  }

  // Batches there and back, and batches there alone, take turns: what changes meanwhile meets both.
  absl::Status MeasureBatches(absl::Duration work, LinkMeasurement& result) {
    std::vector<absl::Duration> both;
    std::vector<absl::Duration> there;
    both.reserve(static_cast<size_t>(options_.batches));
    there.reserve(static_cast<size_t>(options_.batches));
    for (int64_t i = 0; i < options_.batches; ++i) {
      SHOAL_ASSIGN_OR_RETURN(const Answer answer, AskForSums(most_rows_));
      both.push_back(answer.way);
      SHOAL_ASSIGN_OR_RETURN(const absl::Duration time, AskForError(most_rows_));
      there.push_back(time - work);
    }
    result.batch_rows = most_rows_;
    const auto elements = static_cast<uint64_t>(most_rows_ * sizes_.layout.hidden_size);
    result.sent_bytes = elements * sizeof(float);
    result.received_bytes = elements * sizeof(int64_t);
    const absl::Duration there_time = PercentileOf(there, 50) - result.round_trip_p50;
    const absl::Duration back_time = PercentileOf(both, 50) - PercentileOf(there, 50);
    result.send_bytes_per_second = Rate(result.sent_bytes, there_time);
    result.receive_bytes_per_second = Rate(result.received_bytes, back_time);
    return absl::OkStatus();
  }

  static std::optional<double> Rate(uint64_t bytes, absl::Duration time) {
    return time > absl::ZeroDuration()
               ? std::optional(static_cast<double>(bytes) / absl::ToDoubleSeconds(time))
               : std::nullopt;
  }

  // The sums of `num_rows` rows.
  absl::StatusOr<Answer> AskForSums(int64_t num_rows) {
    SHOAL_ASSIGN_OR_RETURN(const Exchange exchange, Ask(Request(num_rows, 1)));
    const v1::LayerReply& reply = *exchange.reply;
    if (reply.has_error()) {
      return ErrorFromWire(reply.error().code(), reply.error().message());
    }
    if (reply.sums_size() != num_rows * sizes_.layout.hidden_size) {
      return absl::InternalError(absl::StrCat("it sent ", reply.sums_size(), " sums where ",
                                              num_rows * sizes_.layout.hidden_size,
                                              " were asked for"));
    }
    const auto work = absl::Nanoseconds(static_cast<int64_t>(reply.cost().execute_ns()));
    const auto queue = absl::Nanoseconds(static_cast<int64_t>(reply.cost().queue_ns()));
    return Answer{exchange.time - work - queue, work};
  }

  // As many rows, and no sums back; what the node took is in it.
  absl::StatusOr<absl::Duration> AskForError(int64_t num_rows) {
    SHOAL_ASSIGN_OR_RETURN(const Exchange exchange, Ask(Request(num_rows, kExcessiveWeight)));
    const v1::Error& error = exchange.reply->error();
    if (exchange.reply->has_error() &&
        error.code() == static_cast<int>(absl::StatusCode::kOutOfRange)) {
      return exchange.time;
    }
    return exchange.reply->has_error()
               ? ErrorFromWire(error.code(), error.message())
               : absl::InternalError("it sent sums that are beyond the fixed point range");
  }

  // Only the first row chooses the expert, so that a large batch is no more work than a row.
  std::shared_ptr<const v1::ExecuteRequest> Request(int64_t num_rows, float weight) {
    auto request = std::make_shared<v1::ExecuteRequest>();
    v1::LayerRequest& layer = *request->mutable_layer();
    layer.set_id(++last_id_);
    layer.set_epoch(1);
    layer.set_layer(static_cast<uint32_t>(sizes_.layers.front()));
    ToMessage(unit_, layer.add_slices());
    layer.mutable_rows()->Resize(static_cast<int>(num_rows * sizes_.layout.hidden_size), 0.5F);
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t slot = 0; slot < sizes_.num_experts_per_token; ++slot) {
        const int64_t first = unit_.experts.begin + (row == 0 ? 0 : 1);
        layer.add_expert_ids(static_cast<uint32_t>((first + slot) % sizes_.num_experts));
        layer.add_expert_weights(weight);
      }
    }
    return request;
  }

  struct Exchange {
    std::unique_ptr<v1::LayerReply> reply;
    absl::Duration time;
  };
  absl::StatusOr<Exchange> Ask(std::shared_ptr<const v1::ExecuteRequest> request) {
    {
      MutexLock lock(&mailbox_->mutex);
      mailbox_->has_reply = false;
    }
    const absl::Time start = clock_.Now();
    const uint64_t id = request->layer().id();
    const bool sent =
        link_->Send(std::move(request), [mailbox = mailbox_, &clock = clock_](auto reply) {
          MutexLock lock(&mailbox->mutex);
          mailbox->arrived = clock.Now();
          mailbox->reply = std::move(reply);
          mailbox->has_reply = true;
          mailbox->changed.NotifyAll();
        });
    if (!sent) {
      return absl::UnavailableError("the stream ended");
    }
    MutexLock lock(&mailbox_->mutex);
    while (!mailbox_->has_reply && !stop_.stop_requested()) {
      if (clock_.Now() - start > kReplyWithin) {
        link_->Forget(id);
        return absl::UnavailableError(
            absl::StrCat("no reply within ", absl::FormatDuration(kReplyWithin)));
      }
      mailbox_->changed.WaitWithTimeout(&mailbox_->mutex, kLookUp);
    }
    SHOAL_RETURN_IF_ERROR(CheckStop());
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<v1::LayerReply> reply, std::move(mailbox_->reply));
    return Exchange{std::move(reply), mailbox_->arrived - start};
  }

  absl::Status CheckStop() const {
    return stop_.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  }

  const ExpertSizes sizes_;
  const LinkProbeOptions options_;
  const Clock& clock_;
  const std::stop_token stop_;
  const std::shared_ptr<Mailbox> mailbox_;
  int64_t most_rows_ = 0;
  ExpertSlice unit_;  // one unit of one expert that the node holds
  uint64_t last_id_ = 0;
  std::unique_ptr<NodeLink> link_;  // last: its callbacks use what is above
};

}  // namespace

absl::Duration PercentileOf(std::vector<absl::Duration>& times, int percent) {
  std::sort(times.begin(), times.end());
  const size_t rank = (times.size() * static_cast<size_t>(percent) + 99) / 100;
  return times[std::max<size_t>(rank, 1) - 1];
}

absl::StatusOr<LinkMeasurement> MeasureLink(const Manifest& manifest, const std::string& address,
                                            const LinkProbeOptions& options, const Clock& clock,
                                            std::stop_token stop) {
  if (manifest.config.num_moe_layers() == 0) {
    return absl::FailedPreconditionError("the model has no experts to ask a node for");
  }
  LinkProbe probe(manifest, address, options, clock, std::move(stop));
  absl::StatusOr<LinkMeasurement> result = probe.Run();
  if (!result.ok()) {
    return Annotate(result.status(), absl::StrCat("node at ", address));
  }
  result->address = address;
  return result;
}

}  // namespace shoal

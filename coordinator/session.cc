#include "coordinator/session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/model/forward.h"
#include "coordinator/model/trunk_loops.h"
#include "coordinator/model_impl.h"

namespace shoal {
namespace {

absl::Status CheckIds(std::span<const int32_t> ids, int64_t vocab_size) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab_size) {
      return absl::OutOfRangeError(absl::StrCat("token ", i, " of the prompt is id ", ids[i],
                                                "; ids of this model are 0 to ", vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status ReportLogits(
    ForwardContext& context, int64_t first_position, int64_t num_rows,
    const std::function<absl::Status(int64_t, std::span<const float>)>& on_logits) {
  for (int64_t row = 0; row < num_rows; ++row) {
    ComputeLogits(context, row);
    SHOAL_RETURN_IF_ERROR(on_logits(first_position + row, context.workspace.logits));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Session::Impl::CheckTrust() const {
  return IsRetracted() ? absl::AbortedError(
                             "a node of the pool was found to compute wrong results, and what "
                             "this conversation holds may come from it: begin it anew")
                       : absl::OkStatus();
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() = default;

std::span<const float> Session::logits() const { return impl_->logits; }
const std::vector<int32_t>& Session::tokens() const { return impl_->tokens; }
int64_t Session::context_tokens() const { return impl_->context_tokens; }

bool Session::IsRetracted() const { return impl_->IsRetracted(); }

void Session::Reset() {
  impl_->retractions = impl_->model.Retractions();
  impl_->tokens.clear();
  impl_->logits.clear();
  impl_->state.Clear();
}

absl::Status Session::Extend(std::span<const int32_t> ids, const ExtendOptions& options) {
  const ModelConfig& config = *impl_->config;
  Model::Impl& model = impl_->model;
  SHOAL_RETURN_IF_ERROR(CheckIds(ids, config.vocab_size));
  if (impl_->tokens.empty()) {
    impl_->retractions = model.Retractions();
  }
  SHOAL_RETURN_IF_ERROR(impl_->CheckTrust());
  const int64_t room = context_tokens() - position();
  if (static_cast<int64_t>(ids.size()) > room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the prompt has ", ids.size(), " tokens and the context of ", context_tokens(),
                     " tokens has room for ", room, "; raise --ctx or shorten the prompt"));
  }
  const TrunkLoops loops(*model.pool, model.mode.threads.least_parallel_cost);
  ForwardContext context{
      .config = config,
      .weights = model.weights,
      .experts = model.experts.get(),
      .whole = model.container->manifest().whole_experts(),
      .loops = loops,
      .state = impl_->state,
      .workspace = impl_->workspace,
      .observer = options.observer,
      .stop = options.stop,
      .call = options.call,
      .arithmetic = model.mode.arithmetic,
  };
  int64_t chunk_tokens = impl_->workspace.max_rows;
  if (options.chunk_tokens > 0) {
    chunk_tokens = std::min(chunk_tokens, options.chunk_tokens);
  }
  const auto total = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < total;) {
    const int64_t count = std::min(chunk_tokens, total - done);
    const int64_t first_position = position();
    const auto chunk = ids.subspan(static_cast<size_t>(done), static_cast<size_t>(count));
    SHOAL_RETURN_IF_ERROR(RunLayers(context, chunk, first_position));
    SHOAL_RETURN_IF_ERROR(impl_->CheckTrust());
    impl_->state.Commit();
    impl_->tokens.insert(impl_->tokens.end(), chunk.begin(), chunk.end());
    // Logits that belong to an earlier token must not survive a chunk whose own were not asked for.
    impl_->logits.clear();
    done += count;
    if (options.on_logits) {
      SHOAL_RETURN_IF_ERROR(ReportLogits(context, first_position, count, options.on_logits));
    } else if (done == total) {
      ComputeLogits(context, count - 1);
    }
    if (done == total) {
      impl_->logits.assign(impl_->workspace.logits.begin(), impl_->workspace.logits.end());
    }
    if (options.on_progress) {
      options.on_progress(done, total);
    }
  }
  return absl::OkStatus();
}

}  // namespace shoal

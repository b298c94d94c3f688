#include "expert_node/service/request_rules.h"

#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

constexpr int64_t kVarintBytes = 5;  // the longest of 32 bits

template <typename... Parts>
absl::Status Broken(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Without a branch, so that the compiler uses vectors: this runs for every row that arrives.
bool AllFinite(const google::protobuf::RepeatedField<float>& values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (const float value : values) {
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  }
  return bad == 0;
}

absl::Status CheckLength(absl::string_view field, int64_t found, int64_t rows, int64_t a_row) {
  if (found == rows * a_row) {
    return absl::OkStatus();
  }
  return Broken(field, " has ", found, " elements; ", rows, " rows of ", a_row, " are ",
                rows * a_row);
}

template <typename Ids>
absl::Status CheckIds(absl::string_view field, const Ids& ids, int64_t num_experts) {
  const auto bad = std::find_if(ids.begin(), ids.end(),
                                [num_experts](uint32_t id) { return id >= num_experts; });
  if (bad == ids.end()) {
    return absl::OkStatus();
  }
  return Broken(field, " holds ", *bad, "; the model has experts 0 to ", num_experts - 1);
}

}  // namespace

absl::StatusOr<ExpertArithmetic> RequestRules::CheckHello(const v1::Hello& hello,
                                                          const v1::Terms& ours) const {
  v1::Terms wanted = ours;
  SHOAL_ASSIGN_OR_RETURN(const ExpertArithmetic arithmetic,
                         ArithmeticOf(hello.terms(), kSeenByNode));
  wanted.set_arithmetic(hello.terms().arithmetic());
  SHOAL_RETURN_IF_ERROR(CheckTerms(wanted, hello.terms(), kSeenByNode));
  if (hello.epoch() == 0) {
    return Broken("hello.epoch is 0 or absent");
  }
  return arithmetic;
}

absl::StatusOr<std::vector<ExpertSlice>> RequestRules::CheckLayer(
    const v1::LayerRequest& request) const {
  if (request.id() == 0) {
    return Broken("layer.id is 0 or absent");
  }
  if (request.epoch() == 0) {
    return Broken("layer.epoch is 0 or absent");
  }
  SHOAL_RETURN_IF_ERROR(CheckLayerIndex(request.layer(), "layer.layer"));
  if (request.slices_size() < 1 || request.slices_size() > kMaxSlices) {
    return Broken("layer.slices has ", request.slices_size(), " elements; 1 to ", kMaxSlices,
                  " are accepted");
  }
  SHOAL_RETURN_IF_ERROR(CheckShapes(request));
  SHOAL_RETURN_IF_ERROR(CheckValues(request));
  std::vector<ExpertSlice> slices;
  slices.reserve(static_cast<size_t>(request.slices_size()));
  for (const v1::ExpertSlice& message : request.slices()) {
    SHOAL_ASSIGN_OR_RETURN(const ExpertSlice slice, FromMessage(message, "layer.slices"));
    slices.push_back(slice);
  }
  SHOAL_RETURN_IF_ERROR(CheckSlices(model_.whole(), slices, "layer.slices"));
  return slices;
}

absl::Status RequestRules::CheckPrefetch(const v1::PrefetchHint& hint) const {
  SHOAL_RETURN_IF_ERROR(CheckLayerIndex(hint.layer(), "prefetch.layer"));
  const int64_t most = 4 * model_.num_experts_per_token;
  if (hint.expert_ids_size() > most) {
    return Broken("prefetch.expert_ids has ", hint.expert_ids_size(), " elements; at most ", most,
                  " are accepted");
  }
  return CheckIds("prefetch.expert_ids", hint.expert_ids(), model_.num_experts);
}

absl::Status RequestRules::CheckLayerIndex(int64_t layer, absl::string_view field) const {
  return model_.LayerIndex(layer)
             ? absl::OkStatus()
             : Broken(field, " is ", layer, ", which is not an MoE layer of the model");
}

absl::Status RequestRules::CheckShapes(const v1::LayerRequest& request) const {
  const int64_t hidden_size = model_.layout.hidden_size;
  const int64_t rows = request.rows_size() / hidden_size;
  if (request.rows_size() % hidden_size != 0) {
    return Broken("layer.rows has ", request.rows_size(),
                  " elements, which is not a multiple of the hidden size ", hidden_size);
  }
  if (rows < 1 || rows > max_rows_) {
    return Broken("layer.rows has ", rows, " rows; 1 to ", max_rows_, " are accepted");
  }
  SHOAL_RETURN_IF_ERROR(CheckLength("layer.expert_ids", request.expert_ids_size(), rows,
                                    model_.num_experts_per_token));
  return CheckLength("layer.expert_weights", request.expert_weights_size(), rows,
                     model_.num_experts_per_token);
}

absl::Status RequestRules::CheckValues(const v1::LayerRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckIds("layer.expert_ids", request.expert_ids(), model_.num_experts));
  if (!AllFinite(request.rows())) {
    return Broken("layer.rows holds NaN or an infinity");
  }
  if (!AllFinite(request.expert_weights())) {
    return Broken("layer.expert_weights holds NaN or an infinity");
  }
  return absl::OkStatus();
}

int64_t RequestRules::MaxRequestBytes() const {
  constexpr int64_t kSliceBytes = 4 + 2 * (2 + 2 * (1 + kVarintBytes));
  constexpr int64_t kRest = 4096;  // of Hello, and of the fields of one number
  const int64_t a_row = model_.layout.hidden_size * int64_t{sizeof(float)} +
                        model_.num_experts_per_token * (kVarintBytes + int64_t{sizeof(float)});
  return max_rows_ * a_row + kMaxSlices * kSliceBytes +
         4 * model_.num_experts_per_token * kVarintBytes + kRest;
}

int64_t RequestRules::MaxReplyBytes() const {
  constexpr int64_t kRest = 4096;  // an error's message, and what it cost
  return max_rows_ * model_.layout.hidden_size * int64_t{sizeof(int64_t)} + kRest;
}

}  // namespace shoal

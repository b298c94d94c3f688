#include "coordinator/cli/hidden_dump.h"

#include <filesystem>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

absl::StatusOr<std::unique_ptr<HiddenDump>> HiddenDump::Create(const std::string& directory,
                                                               int64_t positions) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("create the directory ", directory));
  }
  return std::unique_ptr<HiddenDump>(new HiddenDump(directory, positions));
}

template <typename T>
void HiddenDump::Write(const std::string& name, int64_t num_rows, std::span<const T> values) {
  if (!status_.ok() || num_rows <= 0) {
    return;
  }
  auto writer = writers_.find(name);
  if (writer == writers_.end()) {
    constexpr NpyType kType = std::is_same_v<T, float> ? NpyType::kFloat32 : NpyType::kInt32;
    absl::StatusOr<NpyWriter> created =
        NpyWriter::Create(absl::StrCat(directory_, "/", name, ".npy"), kType, positions_,
                          static_cast<int64_t>(values.size()) / num_rows);
    if (!created.ok()) {
      status_ = created.status();
      return;
    }
    writer = writers_.emplace(name, *std::move(created)).first;
  }
  status_ = writer->second.Append(values);
}

void HiddenDump::OnHidden(const std::string& name, int64_t /*first_position*/, int64_t num_rows,
                          std::span<const float> values) {
  Write(name, num_rows, values);
}

void HiddenDump::OnRouting(int64_t layer, int64_t /*first_position*/, int64_t num_rows,
                           std::span<const int32_t> expert_ids,
                           std::span<const float> expert_weights) {
  Write(absl::StrCat("router_ids.", layer), num_rows, expert_ids);
  Write(absl::StrCat("router_weights.", layer), num_rows, expert_weights);
}

absl::Status HiddenDump::Finish() {
  SHOAL_RETURN_IF_ERROR(status_);
  for (auto& [name, writer] : writers_) {
    SHOAL_RETURN_IF_ERROR(writer.Finish());
  }
  return absl::OkStatus();
}

}  // namespace shoal

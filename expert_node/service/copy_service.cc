#include "expert_node/service/copy_service.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/server_context.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/container/directory_files.h"
#include "common/container/manifest.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "expert_node/service/fetch_grant.h"
#include "expert_node/service/fetch_stream.h"
#include "expert_node/service/refusal.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// Its rows are those of Execute, which is not served here.
constexpr int64_t kNoRows = 1;

}  // namespace

CopyService::CopyService(const ExpertSizes& sizes, const v1::Terms& terms, HeldUnits& units,
                         Options options)
    : sizes_(sizes),
      terms_(terms),
      units_(units),
      options_(std::move(options)),
      rules_(sizes, kNoRows),
      reader_(1) {}

absl::StatusOr<ExpertSlice> CopyService::CheckUnits(const grpc::CallbackServerContext& context,
                                                    const v1::FetchUnitsRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckTerms(terms_, request.terms(), kSeenByNode));
  SHOAL_RETURN_IF_ERROR(rules_.CheckLayerIndex(request.layer(), "layer"));
  SHOAL_ASSIGN_OR_RETURN(const ExpertSlice slice, FromMessage(request.slice(), "slice"));
  SHOAL_RETURN_IF_ERROR(CheckSlices(sizes_.whole(), {&slice, 1}, "slice"));
  SHOAL_RETURN_IF_ERROR(CheckHolds(units_.slices(), slice));
  if (options_.own != nullptr) {
    SHOAL_RETURN_IF_ERROR(CheckMayFetch(*options_.own, PeerCertificate(*context.auth_context()),
                                        request.grant(), terms_.container().identity(), slice,
                                        absl::Now()));
  }
  return slice;
}

absl::StatusOr<std::string> CopyService::NameOf(const v1::FetchModelRequest& request) const {
  if (request.file() == v1::MODEL_FILE_TREE) {
    SHOAL_RETURN_IF_ERROR(rules_.CheckLayerIndex(request.layer(), "layer"));
    return BankTreeFile(request.layer());
  }
  if (request.layer() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer is ", request.layer(), " and the file is not one of a layer"));
  }
  if (request.file() == v1::MODEL_FILE_MANIFEST) {
    return std::string(kManifestFile);
  }
  if (request.file() == v1::MODEL_FILE_CONFIG) {
    return std::string(kConfigFile);
  }
  if (request.file() == v1::MODEL_FILE_CODEBOOKS && HasCodebooks(sizes_.layout.codec)) {
    return std::string(kCodebooksFile);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("file is ", static_cast<int>(request.file()),
                   ", which is absent or no file that this container has"));
}

absl::StatusOr<ModelFileContent> CopyService::OpenFile(const v1::FetchModelRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckTerms(terms_, request.terms(), kSeenByNode));
  SHOAL_ASSIGN_OR_RETURN(const std::string name, NameOf(request));
  ModelFileContent file;
  file.path = absl::StrCat(options_.directory, "/", name);
  SHOAL_ASSIGN_OR_RETURN(file.fd, OpenForRead(file.path));
  SHOAL_ASSIGN_OR_RETURN(file.size_bytes, FileBytes(file.fd, file.path));
  if (file.size_bytes == 0) {
    return absl::DataLossError(absl::StrCat(file.path, " is empty"));
  }
  return file;
}

absl::StatusOr<std::function<void()>> CopyService::Begin() {
  MutexLock lock(&mutex_);
  if (draining_) {
    return absl::UnavailableError("the node is draining: it begins no new copy");
  }
  if (copies_ >= options_.max_copies) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the node sends ", options_.max_copies, " copies already, its most"));
  }
  ++copies_;
  return [this] {
    MutexLock lock(&mutex_);
    --copies_;
  };
}

CopyService::UnitsReactor* CopyService::FetchUnits(grpc::CallbackServerContext& context,
                                                   const v1::FetchUnitsRequest& request) {
  const absl::StatusOr<ExpertSlice> slice = CheckUnits(context, request);
  if (!slice.ok()) {
    return Refuse<UnitsReactor>(slice.status());
  }
  absl::StatusOr<std::function<void()>> on_done = Begin();
  if (!on_done.ok()) {
    return Refuse<UnitsReactor>(on_done.status());
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): deletes itself in OnDone
  return new FetchStream(units_, reader_, request.layer(), *slice, *std::move(on_done));
}

CopyService::ModelReactor* CopyService::FetchModel(const v1::FetchModelRequest& request) {
  absl::StatusOr<ModelFileContent> file = OpenFile(request);
  if (!file.ok()) {
    return Refuse<ModelReactor>(file.status());
  }
  absl::StatusOr<std::function<void()>> on_done = Begin();
  if (!on_done.ok()) {
    return Refuse<ModelReactor>(on_done.status());
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): deletes itself in OnDone
  return new ModelStream(*std::move(file), reader_, *std::move(on_done));
}

void CopyService::Drain() {
  MutexLock lock(&mutex_);
  draining_ = true;
}

}  // namespace shoal

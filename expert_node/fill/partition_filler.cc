#include "expert_node/fill/partition_filler.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "common/io/sha256.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "expert_node/fill/remote_source.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr int kMostSources = 64;

std::string Shown(absl::string_view text) {
  constexpr size_t kMostShown = 80;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMostShown)), "\"");
}

std::string InBytes(uint64_t bytes) {
  return absl::StrCat(bytes, " bytes (", FormatByteSize(bytes), ")");
}

absl::Status CheckSource(const std::string& text, bool beyond_loopback) {
  const absl::StatusOr<NetAddress> address = ParseNetAddress(text);
  if (!address.ok() || !IsNumeric(*address) || address->port == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sources: ", Shown(text), " is not a numeric host:port, like 192.168.1.10:7071"));
  }
  if (!IsLoopback(*address) && !beyond_loopback) {
    return absl::InvalidArgumentError(
        absl::StrCat("sources: ", text, " is beyond this machine, and connections are not ",
                     "protected: the node was started without --tls and without --insecure"));
  }
  return absl::OkStatus();
}

absl::Status CheckCount(absl::string_view field, int count, int most) {
  return count >= 1 && count <= most
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat(field, " has ", count, " elements; 1 to ", most, " are accepted"));
}

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

absl::Status CheckSpace(const PartitionNeed& need, const FillOptions& options,
                        const std::string& directory) {
  const std::string parent = ParentOf(directory);
  SHOAL_ASSIGN_OR_RETURN(const uint64_t free, options.free_disk_bytes(parent));
  if (need.missing_bytes > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the partition needs another ", InBytes(need.missing_bytes),
                     " of disk and the file system of ", parent, " has ", InBytes(free), " free"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<FillOrder> CheckFillRequest(const v1::FillRequest& request,
                                           const FillOptions& options) {
  if (request.name() != options.name) {
    return absl::FailedPreconditionError(absl::StrCat("name differs: this node is ", options.name,
                                                      ", the request is for ",
                                                      Shown(request.name())));
  }
  SHOAL_RETURN_IF_ERROR(CheckTermsOfBuild(request.terms(), kSeenByNode));
  if (!DigestFromHex(request.manifest_sha256()).has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("manifest_sha256 is ",
                                                   Shown(request.manifest_sha256()),
                                                   "; 64 hexadecimal digits are accepted"));
  }
  SHOAL_RETURN_IF_ERROR(CheckCount("slices", request.slices_size(), static_cast<int>(kMaxSlices)));
  SHOAL_RETURN_IF_ERROR(CheckCount("sources", request.sources_size(), kMostSources));
  FillOrder order;
  order.slices.reserve(static_cast<size_t>(request.slices_size()));
  for (const v1::ExpertSlice& message : request.slices()) {
    SHOAL_ASSIGN_OR_RETURN(const ExpertSlice slice, FromMessage(message, "slices"));
    order.slices.push_back(slice);
  }
  for (const std::string& source : request.sources()) {
    SHOAL_RETURN_IF_ERROR(CheckSource(source, options.beyond_loopback));
  }
  order.sources.assign(request.sources().begin(), request.sources().end());
  return order;
}

bool IsVacant(const std::string& directory) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(directory, error);
  return status.type() == fs::file_type::not_found ||
         (fs::is_directory(directory, error) && fs::is_empty(directory, error) && !error);
}

absl::Status CheckFillTarget(const std::string& directory) {
  const std::string target = WithoutTrailingSlashes(directory);
  if (!IsVacant(target)) {
    return absl::FailedPreconditionError(absl::StrCat(target, " is not empty any more"));
  }
  struct stat parent {};
  if (::stat(ParentOf(target).c_str(), &parent) != 0) {
    const int error = errno;
    return error == ENOENT ? absl::NotFoundError(absl::StrCat(
                                 "the directory ", ParentOf(target), ", in which ", target,
                                 " would be made, does not exist: make it, ", "or check the path"))
                           : ErrnoToStatus(error, absl::StrCat("look at ", ParentOf(target)));
  }
  // The directory is made beside its final place and renamed.
  struct stat own {};
  if (::stat(target.c_str(), &own) == 0 && own.st_dev != parent.st_dev) {
    return absl::FailedPreconditionError(
        absl::StrCat(target, " is where a file system is mounted; name a directory inside it, ",
                     "which need not exist"));
  }
  return absl::OkStatus();
}

absl::Status FillPartition(const v1::FillRequest& request, const FillOptions& options,
                           const OnPartitionProgress& on_progress, std::stop_token stop) {
  SHOAL_ASSIGN_OR_RETURN(FillOrder order, CheckFillRequest(request, options));
  const std::string directory = WithoutTrailingSlashes(options.directory);
  SHOAL_RETURN_IF_ERROR(CheckFillTarget(directory));
  RemoteSource::Options remote;
  remote.addresses = std::move(order.sources);
  remote.manifest_sha256 = request.manifest_sha256();
  remote.on_note = options.on_note;
  remote.own = options.own;
  remote.grant = request.grant();
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<RemoteSource> source,
                         RemoteSource::Connect(request.terms(), std::move(remote), stop));
  const Manifest& manifest = source->manifest();
  SHOAL_RETURN_IF_ERROR(CheckSlices(manifest.whole_experts(), order.slices, "slices"));
  const PartitionIndex wanted{options.name, manifest.identity, SortedSlices(order.slices), {}};
  SHOAL_RETURN_IF_ERROR(source->CheckCovers(wanted.slices));
  SHOAL_ASSIGN_OR_RETURN(const std::string manifest_text, source->ReadManifestText());
  const PartitionNeed need =
      NeedOfPartition(manifest, manifest_text.size(), wanted.slices, directory);
  SHOAL_RETURN_IF_ERROR(CheckSpace(need, options, directory));
  SHOAL_ASSIGN_OR_RETURN(const auto staging,
                         StagingDirectory::Acquire(directory, kPartitionStaging));
  WrittenPartition written;
  PartitionProgress progress;
  progress.bytes_total = need.bank_bytes;
  const absl::Status status =
      WritePartition(*source, wanted, *staging, written, progress, on_progress, std::move(stop));
  for (const std::string& file : written.remade_files) {
    options.on_note(
        absl::StrCat(file, " of an earlier call was not as it had been left; made again"));
  }
  return absl::IsResourceExhausted(status)
             ? Annotate(status, "free some disk and fill it again: what is finished is kept")
             : status;
}

}  // namespace shoal

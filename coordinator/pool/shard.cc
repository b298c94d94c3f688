#include "coordinator/pool/shard.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/partition.h"
#include "common/container/partition_source.h"
#include "common/container/staging_directory.h"
#include "common/io/byte_size.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

// One node's partition that is to be made.
struct Job {
  PartitionIndex wanted;  // without files
  std::string target;
  PartitionNeed need;
};

std::string InBytes(uint64_t bytes) {
  return absl::StrCat(bytes, " bytes (", FormatByteSize(bytes), ")");
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// Fills in `node` from a partition that is there. ALREADY_EXISTS where it lacks anything wanted; more
// is no harm: a node whose units were given to another keeps them.
absl::Status TakeExisting(const Container& container, const Job& job, ShardedNode& node) {
  const auto partition = Partition::Open(job.target);
  if (!partition.ok()) {
    return absl::AlreadyExistsError(absl::StrCat(
        job.target, " exists and is not a whole partition (",
        std::string(partition.status().message()), "); remove it or choose another --out"));
  }
  const PartitionIndex& found = (*partition)->index();
  const bool lacks = std::any_of(
      job.wanted.slices.begin(), job.wanted.slices.end(),
      [&found](const ExpertSlice& slice) { return !Uncovered(slice, found.slices).empty(); });
  if (found.name != job.wanted.name || lacks ||
      !CheckPartition(found, container.manifest(), job.target).ok()) {
    return absl::AlreadyExistsError(
        absl::StrCat(job.target, " holds the partition of node ", found.name,
                     found.identity != job.wanted.identity ? " of another container"
                     : lacks                               ? " with other slices"
                                                           : "",
                     "; remove it or choose another --out"));
  }
  node.already_there = true;
  for (const FileEntry& file : found.files) {
    node.partition_bytes += file.size_bytes;
  }
  return absl::OkStatus();
}

class Sharder {
 public:
  Sharder(const Container& container, std::string out, const ShardOptions& options,
          const std::function<void(const ShardProgress&)>& on_progress, std::stop_token stop)
      : container_(container),
        out_(std::move(out)),
        options_(options),
        on_progress_(on_progress),
        stop_(std::move(stop)) {}

  absl::StatusOr<ShardReport> Run(const std::vector<PoolNode>& nodes) {
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd manifest, OpenForRead(container_.PathOf(kManifestFile)));
    SHOAL_ASSIGN_OR_RETURN(manifest_bytes_, FileBytes(manifest, kManifestFile));
    std::vector<Job> jobs;
    for (const PoolNode& node : nodes) {
      jobs.push_back(JobOf(node));
      const Job& job = jobs.back();
      ShardedNode& reported = report_.nodes.emplace_back();
      reported.name = node.name;
      reported.directory = job.target;
      reported.slices = job.wanted.slices;
      if (Exists(job.target)) {
        SHOAL_RETURN_IF_ERROR(TakeExisting(container_, job, reported));
        StagingDirectory::RemoveLeftOver(job.target, kPartitionStaging);
      } else {
        missing_bytes_ += job.need.missing_bytes;
        progress_.bytes_total += job.need.bank_bytes;
      }
    }
    SHOAL_RETURN_IF_ERROR(CheckSpace());
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (!report_.nodes[i].already_there) {
        SHOAL_RETURN_IF_ERROR(Make(jobs[i], report_.nodes[i]));
      }
    }
    return std::move(report_);
  }

 private:
  Job JobOf(const PoolNode& node) const {
    const Manifest& manifest = container_.manifest();
    Job job;
    job.wanted = {node.name, manifest.identity, SortedSlices(node.stored()), {}};
    job.target = absl::StrCat(out_, "/", node.name);
    job.need = NeedOfPartition(manifest, manifest_bytes_, job.wanted.slices, job.target);
    return job;
  }

  absl::Status CheckSpace() const {
    if (missing_bytes_ == 0) {
      return absl::OkStatus();
    }
    const std::string parent = fs::path(out_).parent_path().string();
    SHOAL_ASSIGN_OR_RETURN(const uint64_t free,
                           options_.free_disk_bytes(Exists(out_)     ? out_
                                                    : parent.empty() ? "."
                                                                     : parent));
    if (missing_bytes_ > free) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the partitions need another ", InBytes(missing_bytes_),
                       " of disk and the file system of ", out_, " has ", InBytes(free),
                       " free; free some, name one node with --node, or choose another --out"));
    }
    return MakeDirectory(out_);
  }

  absl::Status Make(const Job& job, ShardedNode& node) {
    SHOAL_ASSIGN_OR_RETURN(const auto staging,
                           StagingDirectory::Acquire(job.target, kPartitionStaging));
    if (Exists(job.target)) {
      // Another process has just finished it.
      return TakeExisting(container_, job, node);
    }
    ContainerSource source(container_);
    absl::Status status =
        WritePartition(source, job.wanted, *staging, node, progress_, on_progress_, stop_);
    if (absl::IsResourceExhausted(status)) {
      return Annotate(status,
                      absl::StrCat("node ", node.name, " needs ", InBytes(job.need.missing_bytes),
                                   " of disk; free them and run the same command again"));
    }
    return status;
  }

  const Container& container_;
  const std::string out_;
  const ShardOptions& options_;
  const std::function<void(const ShardProgress&)>& on_progress_;
  const std::stop_token stop_;
  uint64_t manifest_bytes_ = 0;
  uint64_t missing_bytes_ = 0;
  ShardProgress progress_;
  ShardReport report_;
};

// The nodes that need a partition: the coordinator has the container.
absl::StatusOr<std::vector<PoolNode>> Select(const PoolPlan& plan, const std::string& only_node) {
  const std::vector<PoolNode> all = plan.remote();
  std::vector<PoolNode> nodes;
  std::copy_if(all.begin(), all.end(), std::back_inserter(nodes),
               [&](const PoolNode& node) { return only_node.empty() || node.name == only_node; });
  if (nodes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the plan has no node named \"", only_node, "\" that needs a partition; it has ",
        absl::StrJoin(all, ", ",
                      [](std::string* text, const PoolNode& node) { text->append(node.name); })));
  }
  return nodes;
}

}  // namespace

absl::StatusOr<ShardReport> Shard(const Container& container, const PoolPlan& plan,
                                  const std::string& out, const ShardOptions& options,
                                  const std::function<void(const ShardProgress&)>& on_progress,
                                  std::stop_token stop) {
  SHOAL_RETURN_IF_ERROR(CheckPlan(plan, container.manifest()));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<PoolNode> nodes, Select(plan, options.only_node));
  const std::string directory = WithoutTrailingSlashes(out);
  std::error_code ignored;
  if (directory.empty() || fs::equivalent(directory, container.directory(), ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", out,
                     "\" cannot be the directory of partitions; choose one that is not "
                     "the container"));
  }
  return Sharder(container, directory, options, on_progress, std::move(stop)).Run(nodes);
}

}  // namespace shoal

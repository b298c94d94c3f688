// Fills an empty node: makes its partition from units that other machines hold.
#ifndef SHOAL_EXPERT_NODE_FILL_PARTITION_FILLER_H_
#define SHOAL_EXPERT_NODE_FILL_PARTITION_FILLER_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/partition_writer.h"
#include "common/io/file.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class FillRequest;
}  // namespace v1

struct FillOptions {
  std::string name;              // the node's, as CheckNodeName wants it
  std::string directory;         // becomes the partition; does not exist or is empty
  bool beyond_loopback = false;  // whether sources on other machines are accepted
  SecurityPtr own = {};          // as ChannelSecurity's
  std::function<void(absl::string_view)> on_note = [](absl::string_view /*line*/) {};
  // Free bytes of the file system that holds a path. Tests give their own.
  std::function<absl::StatusOr<uint64_t>(const std::string&)> free_disk_bytes = FreeDiskBytes;
};

// What a request asks for, as far as that can be checked without the model.
struct FillOrder {
  std::vector<ExpertSlice> slices;   // neither range empty; whether they are inside the model and
                                     // disjoint is not known yet
  std::vector<std::string> sources;  // host:port
};
//   FAILED_PRECONDITION  the name is another node's; or CheckTermsOfBuild's
//   INVALID_ARGUMENT     names the field, what it holds and what is accepted
absl::StatusOr<FillOrder> CheckFillRequest(const v1::FillRequest& request,
                                           const FillOptions& options);

// Whether a node with this directory is empty: it does not exist, or has nothing in it.
bool IsVacant(const std::string& directory);

// Whether a partition can be made there.
//   FAILED_PRECONDITION  it is not vacant, or is where a file system is mounted
//   and ErrnoToStatus's codes where the directory that it is in is not there
absl::Status CheckFillTarget(const std::string& directory);

// Fetches what the request asks for and writes the partition, as WritePartition, into
// directory.partial, which becomes the directory in one rename: the same bytes as `shoal shard`
// makes. Every unit is checked against the manifest before it is written. Stopped or killed at any
// moment, a later call with the same request goes on from the banks that are finished.
//   CANCELLED            `stop` came
//   FAILED_PRECONDITION  directory.partial holds another partition's work or is locked; the terms
//                        are not those of the manifest
//   RESOURCE_EXHAUSTED   the disk has not the space: need and free in bytes, before anything is
//                        written; or it is full, with the file
//   and the errors of CheckFillRequest, CheckFillTarget, CheckSlices and RemoteSource
absl::Status FillPartition(const v1::FillRequest& request, const FillOptions& options,
                           const OnPartitionProgress& on_progress, std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_FILL_PARTITION_FILLER_H_

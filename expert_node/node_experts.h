// What a node opens: everything it knows of the model and of the experts in its directory.
#ifndef SHOAL_EXPERT_NODE_NODE_EXPERTS_H_
#define SHOAL_EXPERT_NODE_NODE_EXPERTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "expert_node/expert_model.h"
#include "expert_node/slice_source.h"

namespace shoal {

struct NodeExperts {
  std::string name;   // that the partition was made for; empty for a container
  Manifest manifest;  // what terms are made from
  ExpertModel model;
  std::vector<SliceSource> slices;  // held; disjoint
};

// Of a partition, or of a whole container, which holds everything. The digests of all files but
// the banks (and of a container the trunk) are checked.
//   NOT_FOUND  the directory is neither
//   and the errors of Partition::Open, Container::Open and ExpertModel's From...
absl::StatusOr<NodeExperts> OpenNodeExperts(const std::string& directory);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_NODE_EXPERTS_H_

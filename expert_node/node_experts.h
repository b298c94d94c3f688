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
  Manifest manifest;  // what terms are made from
  ExpertModel model;
  std::vector<SliceSource> slices;  // held; disjoint
};

// Of a whole container, which holds everything. Container::Open's and ExpertModel::FromContainer's
// errors: the digests of all small files were checked.
absl::StatusOr<NodeExperts> OpenNodeExperts(const std::string& directory);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_NODE_EXPERTS_H_

#include "expert_node/node_experts.h"

#include <memory>

#include "common/container/container.h"
#include "common/container/partition.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

absl::StatusOr<NodeExperts> OpenPartition(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Partition> partition, Partition::Open(directory));
  NodeExperts experts;
  experts.name = partition->name();
  SHOAL_ASSIGN_OR_RETURN(experts.model, ExpertModel::FromPartition(*partition));
  experts.manifest = partition->manifest();
  for (size_t i = 0; i < partition->slices().size(); ++i) {
    experts.slices.push_back(SliceOfPartition(*partition, i));
  }
  return experts;
}

}  // namespace

absl::StatusOr<NodeExperts> OpenNodeExperts(const std::string& directory) {
  if (HoldsPartition(directory)) {
    return OpenPartition(directory);
  }
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory));
  NodeExperts experts;
  SHOAL_ASSIGN_OR_RETURN(experts.model, ExpertModel::FromContainer(*container));
  experts.manifest = container->manifest();
  experts.slices = {SliceOfContainer(*container, experts.model.whole())};
  return experts;
}

}  // namespace shoal

#include "expert_node/node_experts.h"

#include <memory>

#include "common/container/container.h"
#include "common/status/status_macros.h"

namespace shoal {

absl::StatusOr<NodeExperts> OpenNodeExperts(const std::string& directory) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory));
  NodeExperts experts;
  SHOAL_ASSIGN_OR_RETURN(experts.model, ExpertModel::FromContainer(*container));
  experts.manifest = container->manifest();
  experts.slices = {SliceOfContainer(*container, experts.model.whole())};
  return experts;
}

}  // namespace shoal

// Who computes what: the experts cut into cells, each with the nodes that hold it.
#ifndef SHOAL_COORDINATOR_POOL_CELLS_H_
#define SHOAL_COORDINATOR_POOL_CELLS_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/container/expert_slice.h"

namespace shoal {

// What one node has on its disk.
struct Holdings {
  std::vector<ExpertSlice> slices;  // disjoint
  // What it computes while every node is well, a part of `slices`. Empty everywhere: nobody has
  // decided, and who holds the same shares it.
  std::vector<ExpertSlice> computes = {};
};

// A part of the experts that the same nodes hold.
struct Cell {
  ExpertSlice slice;
  // Indices of nodes in the order in which they are asked: the first computes it in health. Empty
  // where nobody holds it.
  std::vector<size_t> holders;
  bool operator==(const Cell&) const = default;
};

// Cuts `whole` into disjoint cells that cover it, by unit, then by expert. What several nodes hold
// and nobody is named for is cut by units into as many parts, one a node, as even as whole units
// allow. At most a few hundred slices in all.
std::vector<Cell> MakeCells(const ExpertSlice& whole, std::span<const Holdings> nodes);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_CELLS_H_

// Who computes what while some nodes are not to be asked. Not part of the public interface.
#ifndef SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_
#define SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_

#include <span>
#include <vector>

#include "common/container/expert_slice.h"
#include "coordinator/pool/cells.h"

namespace shoal {

// Cuts `cells` (of `whole`) so that those who are left are done at the same time, as far as copies
// and whole units allow. `weights` has for each holder what it gets through in a time, in any unit;
// 0 where it is not to be asked. Work is handed on along the chain of copies: where b is gone, a
// computes b's range out of its copy, and the holder of a's copy a part of a's range in turn.
//
// Each result is a part of a cell with the same holders, the one that is to compute it first. A cell
// that nobody with a weight holds stays as it is. Cells of all experts are cut by units, others by
// experts.
std::vector<Cell> BalanceLoad(const ExpertSlice& whole, std::span<const Cell> cells,
                              std::span<const double> weights);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_

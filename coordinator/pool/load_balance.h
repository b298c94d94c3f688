// Who computes what while some nodes are not to be asked. Not part of the public interface.
#ifndef SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_
#define SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "common/container/expert_slice.h"
#include "coordinator/pool/cells.h"

namespace shoal {

// Cuts `cells` (of `whole`) so that those who are left are done at the same time, as far as copies
// and whole units allow. `asked` has for each holder whether it may be asked. How fast each is shows
// in what it is the first holder of, because that was given by its rate; who is the first nowhere
// counts as the slowest. Work is handed on along the chain of copies: where b is gone, a computes
// b's range out of its copy, and the holder of a's copy a part of a's range in turn.
//
// Each result is a part of a cell with the same holders, the one that is to compute it first. A cell
// that nobody who is asked holds stays as it is. Cells of all experts are cut by units, others by
// experts.
std::vector<Cell> BalanceLoad(const ExpertSlice& whole, std::span<const Cell> cells,
                              const std::vector<bool>& asked);

// What each of `num_holders` then computes where `dead` alone is gone. `dead` keeps what nobody else
// holds.
std::vector<std::vector<ExpertSlice>> WorkAfterDeath(const ExpertSlice& whole,
                                                     std::span<const Cell> cells,
                                                     size_t num_holders, size_t dead);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_LOAD_BALANCE_H_

// How a pool goes on with other machines while its nodes keep what they store: whole-number
// arithmetic on a line of items (units, or experts), without a model.
#ifndef SHOAL_COORDINATOR_POOL_KEPT_SHARES_H_
#define SHOAL_COORDINATOR_POOL_KEPT_SHARES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "coordinator/pool/placement_axis.h"

namespace shoal {

// A machine before the change. Ranges are inside [0, total), disjoint within a list.
struct SharingNode {
  double rate = 0;       // positive; a share is in proportion to it
  bool is_new = false;   // stores nothing and can fetch anything; the others fetch nothing
  bool is_last = false;  // nobody outlives it, so that what it stores needs no second copy
  std::vector<ItemRange> computes;
  std::vector<ItemRange> stores;  // `computes` and what else is there
};

// The same machine after it. Ranges are rising and disjoint, and never touch within a list.
struct KeptShare {
  std::vector<ItemRange> computes;
  std::vector<ItemRange> copies;  // stored and not computed
};

struct KeptShares {
  std::vector<KeptShare> nodes;        // as they were given
  std::vector<ItemRange> lost;         // computed by nobody: nobody stores them and nobody is new
  std::vector<ItemRange> stored_once;  // by one node alone, and not the last
};

// Shares `total` items anew. The `computes` of different nodes are disjoint; items in nobody's are
// those of a machine that is gone.
//  - A node that is not new computes only what it stores. What it no longer computes it still
//    stores, as a copy.
//  - Items of a machine that is gone go to who stores them, and else to new nodes.
//  - Nodes that have more than their share by rate give: what another stores, to that one; the rest
//    of their surplus to new nodes, from an end of a range, and where two that give are neighbours
//    from the ends that meet. So every node gets its share, but that one that is not new and has
//    less may keep less.
//  - With `copies` 2 new nodes also store what is stored once.
// The time grows with the square of `total`, which is at most some thousands.
KeptShares ShareKeeping(int64_t total, std::span<const SharingNode> nodes, int64_t copies);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_KEPT_SHARES_H_

#include "coordinator/pool/cells.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

namespace shoal {
namespace {

bool Contains(std::span<const ExpertSlice> slices, const ExpertSlice& piece) {
  return std::any_of(slices.begin(), slices.end(), [&piece](const ExpertSlice& slice) {
    return Intersect(slice, piece) == piece;
  });
}

// Who holds `piece`, which no border of a slice crosses: those that compute it first.
std::vector<size_t> HoldersOf(const ExpertSlice& piece, std::span<const Holdings> nodes) {
  std::vector<size_t> holders;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (Contains(nodes[i].computes, piece)) {
      holders.push_back(i);
    }
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (Contains(nodes[i].slices, piece) && !Contains(nodes[i].computes, piece)) {
      holders.push_back(i);
    }
  }
  return holders;
}

// Where slices begin and end, those of `whole` included.
struct Borders {
  std::set<int64_t> units;
  std::set<int64_t> experts;
  void Add(const ExpertSlice& slice) {
    units.insert({slice.units.begin, slice.units.end});
    experts.insert({slice.experts.begin, slice.experts.end});
  }
};

// Adds `cell`, as one with the one before it where they lie side by side and have the same holders.
void AddMerged(Cell cell, std::vector<Cell>& cells) {
  for (Cell& other : cells) {
    if (other.holders != cell.holders) {
      continue;
    }
    ExpertSlice& slice = other.slice;
    if (slice.units == cell.slice.units && slice.experts.end == cell.slice.experts.begin) {
      slice.experts.end = cell.slice.experts.end;
      return;
    }
    if (slice.experts == cell.slice.experts && slice.units.end == cell.slice.units.begin) {
      slice.units.end = cell.slice.units.end;
      return;
    }
  }
  cells.push_back(std::move(cell));
}

// One cell for each of its holders, who then is the first to be asked for it.
void AddShared(const Cell& cell, std::vector<Cell>& cells) {
  const auto count = static_cast<int64_t>(cell.holders.size());
  for (int64_t i = 0; i < count; ++i) {
    Cell part = cell;
    const int64_t units = cell.slice.units.size();
    part.slice.units = {cell.slice.units.begin + units * i / count,
                        cell.slice.units.begin + units * (i + 1) / count};
    std::rotate(part.holders.begin(), part.holders.begin() + i, part.holders.end());
    if (!part.slice.empty()) {
      cells.push_back(std::move(part));
    }
  }
}

}  // namespace

std::vector<Cell> MakeCells(const ExpertSlice& whole, std::span<const Holdings> nodes) {
  Borders borders;
  borders.Add(whole);
  bool decided = false;
  for (const Holdings& node : nodes) {
    decided = decided || !node.computes.empty();
    std::for_each(node.slices.begin(), node.slices.end(),
                  [&](const ExpertSlice& slice) { borders.Add(slice); });
    std::for_each(node.computes.begin(), node.computes.end(),
                  [&](const ExpertSlice& slice) { borders.Add(slice); });
  }
  std::vector<Cell> rows;  // cells of one range of units, merged over experts
  for (auto unit = borders.units.begin(); std::next(unit) != borders.units.end(); ++unit) {
    for (auto e = borders.experts.begin(); std::next(e) != borders.experts.end(); ++e) {
      const ExpertSlice piece{{*unit, *std::next(unit)}, {*e, *std::next(e)}};
      AddMerged({piece, HoldersOf(piece, nodes)}, rows);
    }
  }
  if (decided) {
    return rows;
  }
  std::vector<Cell> cells;
  for (const Cell& cell : rows) {
    if (cell.holders.size() < 2) {
      cells.push_back(cell);
    } else {
      AddShared(cell, cells);
    }
  }
  return cells;
}

}  // namespace shoal

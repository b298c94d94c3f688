#include "coordinator/pool/load_balance.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

namespace shoal {
namespace {

// One cell on its way to being cut: steps are its units, or where it has not all experts those.
struct Cutting {
  const Cell* cell = nullptr;
  bool by_units = true;
  double step_size = 0;        // units times experts of a step
  std::vector<int64_t> steps;  // by place in cell->holders: what that one computes
  bool Has(size_t holder_place) const { return steps[holder_place] > 0; }
};

// Step of `cutting` goes from one holder to another.
struct Move {
  size_t cutting = 0;
  size_t from_place = 0;  // in the cell's holders
  size_t to_place = 0;
};

double SizeOf(const ExpertSlice& slice) {
  return static_cast<double>(slice.units.size() * slice.experts.size());
}

// By holder; 0 where it is not asked.
std::vector<double> WeightsOf(std::span<const Cell> cells, const std::vector<bool>& asked) {
  std::vector<double> weights(asked.size());
  for (const Cell& cell : cells) {
    if (!cell.holders.empty()) {
      weights[cell.holders.front()] += SizeOf(cell.slice);
    }
  }
  double least = 0;  // of those that are first somewhere
  for (const double weight : weights) {
    least = weight > 0 && (least == 0 || weight < least) ? weight : least;
  }
  for (size_t holder = 0; holder < weights.size(); ++holder) {
    weights[holder] = asked[holder] ? std::max(weights[holder], least) : 0;
  }
  return weights;
}

class Balancer {
 public:
  Balancer(const ExpertSlice& whole, std::span<const Cell> cells, const std::vector<bool>& asked)
      : weights_(WeightsOf(cells, asked)), loads_(asked.size()) {
    cuttings_.reserve(cells.size());
    for (const Cell& cell : cells) {
      Begin(whole, cell);
    }
  }

  // Takes work from the one that would be done last, until nobody can take it.
  void Run() {
    while (Improve()) {
    }
  }

  std::vector<Cell> Result() const {
    std::vector<Cell> result;
    for (const Cutting& cutting : cuttings_) {
      Cut(cutting, result);
    }
    return result;
  }

 private:
  bool IsAsked(size_t holder) const { return weights_[holder] > 0; }
  size_t HolderAt(const Cutting& cutting, size_t place) const {
    return cutting.cell->holders[place];
  }
  double TimeOf(size_t holder) const { return loads_[holder] / weights_[holder]; }

  // All of it to the first who is asked.
  void Begin(const ExpertSlice& whole, const Cell& cell) {
    Cutting& cutting = cuttings_.emplace_back();
    cutting.cell = &cell;
    cutting.by_units = cell.slice.experts == whole.experts;
    cutting.steps.resize(cell.holders.size());
    const int64_t units = cell.slice.units.size();
    const int64_t experts = cell.slice.experts.size();
    cutting.step_size = static_cast<double>(cutting.by_units ? experts : units);
    const auto first = std::find_if(cell.holders.begin(), cell.holders.end(),
                                    [this](size_t holder) { return IsAsked(holder); });
    if (first != cell.holders.end()) {
      cutting.steps[static_cast<size_t>(first - cell.holders.begin())] =
          cutting.by_units ? units : experts;
      loads_[*first] += SizeOf(cell.slice);
    }
  }

  // One step along the shortest way from the slowest to the one that would be the fastest with it.
  // False where nobody would be faster than the slowest is now.
  bool Improve() {
    std::optional<size_t> slowest;
    for (size_t holder = 0; holder < loads_.size(); ++holder) {
      if (IsAsked(holder) && (!slowest || TimeOf(holder) > TimeOf(*slowest))) {
        slowest = holder;
      }
    }
    if (!slowest) {
      return false;
    }
    const std::vector<std::optional<Move>> ways = WaysFrom(*slowest);
    std::optional<size_t> best;
    double best_time = TimeOf(*slowest) * (1 - kEqual);
    for (size_t holder = 0; holder < ways.size(); ++holder) {
      if (!ways[holder]) {
        continue;
      }
      const double more = cuttings_[ways[holder]->cutting].step_size / weights_[holder];
      if (TimeOf(holder) + more < best_time && !Overloads(ways, holder, TimeOf(*slowest))) {
        best = holder;
        best_time = TimeOf(holder) + more;
      }
    }
    if (!best) {
      return false;
    }
    Apply(ways, *best);
    return true;
  }

  // By holder: how a step last gets to it, from another that is nearer to `source`.
  std::vector<std::optional<Move>> WaysFrom(size_t source) const {
    std::vector<std::optional<Move>> ways(loads_.size());
    std::deque<size_t> next = {source};
    while (!next.empty()) {
      const size_t from = next.front();
      next.pop_front();
      for (size_t i = 0; i < cuttings_.size(); ++i) {
        const std::vector<size_t>& holders = cuttings_[i].cell->holders;
        const auto place =
            static_cast<size_t>(std::find(holders.begin(), holders.end(), from) - holders.begin());
        if (place == holders.size() || !cuttings_[i].Has(place)) {
          continue;
        }
        for (size_t to = 0; to < holders.size(); ++to) {
          if (const size_t holder = holders[to];
              IsAsked(holder) && holder != source && !ways[holder]) {
            ways[holder] = Move{i, place, to};
            next.push_back(holder);
          }
        }
      }
    }
    return ways;
  }

  // Whether somebody on the way to `holder` would be as slow as the slowest is: what comes to it may
  // be larger than what it hands on.
  bool Overloads(const std::vector<std::optional<Move>>& ways, size_t holder, double limit) const {
    double handed_on = cuttings_[ways[holder]->cutting].step_size;
    size_t on_the_way = FromOf(*ways[holder]);
    while (ways[on_the_way]) {
      const double comes = cuttings_[ways[on_the_way]->cutting].step_size;
      if (TimeOf(on_the_way) + (comes - handed_on) / weights_[on_the_way] >= limit) {
        return true;
      }
      handed_on = comes;
      on_the_way = FromOf(*ways[on_the_way]);
    }
    return false;
  }

  void Apply(const std::vector<std::optional<Move>>& ways, size_t holder) {
    while (ways[holder]) {
      const Move& move = *ways[holder];
      Cutting& cutting = cuttings_[move.cutting];
      --cutting.steps[move.from_place];
      ++cutting.steps[move.to_place];
      loads_[holder] += cutting.step_size;
      holder = FromOf(move);
      loads_[holder] -= cutting.step_size;
    }
  }

  size_t FromOf(const Move& move) const {
    return HolderAt(cuttings_[move.cutting], move.from_place);
  }

  // A part for each who computes some of it.
  static void Cut(const Cutting& cutting, std::vector<Cell>& result) {
    const Cell& cell = *cutting.cell;
    int64_t done = 0;
    for (size_t place = 0; place < cell.holders.size(); ++place) {
      if (!cutting.Has(place)) {
        continue;
      }
      Cell part = cell;
      int64_t& begin = cutting.by_units ? part.slice.units.begin : part.slice.experts.begin;
      int64_t& end = cutting.by_units ? part.slice.units.end : part.slice.experts.end;
      begin += done;
      end = begin + cutting.steps[place];
      done += cutting.steps[place];
      const auto first = part.holders.begin() + static_cast<std::ptrdiff_t>(place);
      std::rotate(part.holders.begin(), first, first + 1);
      result.push_back(std::move(part));
    }
    if (done == 0) {
      result.push_back(cell);
    }
  }

  // Loads are sums of whole numbers divided by weights: closer than this is the same.
  static constexpr double kEqual = 1e-9;

  const std::vector<double> weights_;  // by holder
  std::vector<double> loads_;          // by holder, in units times experts
  std::vector<Cutting> cuttings_;
};

}  // namespace

std::vector<Cell> BalanceLoad(const ExpertSlice& whole, std::span<const Cell> cells,
                              const std::vector<bool>& asked) {
  Balancer balancer(whole, cells, asked);
  balancer.Run();
  return balancer.Result();
}

std::vector<std::vector<ExpertSlice>> WorkAfterDeath(const ExpertSlice& whole,
                                                     std::span<const Cell> cells,
                                                     size_t num_holders, size_t dead) {
  std::vector<bool> asked(num_holders, true);
  asked[dead] = false;
  std::vector<std::vector<ExpertSlice>> work(num_holders);
  for (const Cell& part : BalanceLoad(whole, cells, asked)) {
    work[part.holders.front()].push_back(part.slice);
  }
  return work;
}

}  // namespace shoal

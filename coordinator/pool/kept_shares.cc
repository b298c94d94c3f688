#include "coordinator/pool/kept_shares.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace shoal {
namespace {

constexpr size_t kNobody = static_cast<size_t>(-1);

// A stretch of items that one node computes.
struct Run {
  size_t owner = kNobody;
  ItemRange items;
};

// Item by item, who computes it and who stores it.
class Line {
 public:
  Line(int64_t total, std::span<const SharingNode> nodes)
      : nodes_(nodes),
        owners_(static_cast<size_t>(total), kNobody),
        stored_(nodes.size(), std::vector<bool>(owners_.size(), false)),
        loads_(nodes.size(), 0) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (const ItemRange& range : nodes[n].stores) {
        std::fill(stored_[n].begin() + range.begin, stored_[n].begin() + range.end, true);
      }
      for (const ItemRange& range : nodes[n].computes) {
        for (int64_t i = range.begin; i < range.end; ++i) {
          Give(i, n);
        }
      }
    }
  }

  int64_t total() const { return std::ssize(owners_); }
  size_t num_nodes() const { return nodes_.size(); }
  const SharingNode& node(size_t n) const { return nodes_[n]; }
  size_t owner(int64_t i) const {
    return i < 0 || i >= total() ? kNobody : owners_[static_cast<size_t>(i)];
  }
  bool stores(size_t n, int64_t i) const { return stored_[n][static_cast<size_t>(i)]; }
  int64_t load(size_t n) const { return loads_[n]; }
  // How long it takes for its items and so many more.
  double Time(size_t n, int64_t more = 0) const {
    return static_cast<double>(loads_[n] + more) / nodes_[n].rate;
  }

  void Give(int64_t i, size_t to) {
    size_t& owner = owners_[static_cast<size_t>(i)];
    if (owner != kNobody) {
      --loads_[owner];
    }
    owner = to;
    ++loads_[to];
    Store(i, to);
  }
  void Store(int64_t i, size_t n) { stored_[n][static_cast<size_t>(i)] = true; }

  std::vector<Run> Runs() const {
    std::vector<Run> runs;
    for (int64_t i = 0; i < total(); ++i) {
      if (runs.empty() || runs.back().owner != owner(i)) {
        runs.push_back({owner(i), {i, i}});
      }
      ++runs.back().items.end;
    }
    return runs;
  }

  std::vector<ItemRange> Where(const std::function<bool(int64_t)>& is_so) const {
    std::vector<ItemRange> ranges;
    for (int64_t i = 0; i < total(); ++i) {
      if (!is_so(i)) {
        continue;
      }
      if (ranges.empty() || ranges.back().end != i) {
        ranges.push_back({i, i});
      }
      ++ranges.back().end;
    }
    return ranges;
  }

 private:
  const std::span<const SharingNode> nodes_;
  std::vector<size_t> owners_;
  std::vector<std::vector<bool>> stored_;  // by node
  std::vector<int64_t> loads_;
};

std::vector<size_t> HoldersOf(const Line& line, int64_t i) {
  std::vector<size_t> holders;
  for (size_t n = 0; n < line.num_nodes(); ++n) {
    if (line.stores(n, i)) {
      holders.push_back(n);
    }
  }
  return holders;
}

bool IsStoredOnce(const Line& line, int64_t i) {
  const std::vector<size_t> holders = HoldersOf(line, i);
  return holders.size() == 1 && !line.node(holders.front()).is_last;
}

// Items that nobody computes and the same nodes store: as many to each as it would be done with
// first, in one range each.
void Adopt(ItemRange items, std::vector<size_t> holders, Line& line) {
  std::map<size_t, int64_t> counts;
  for (int64_t i = items.begin; i < items.end; ++i) {
    ++counts[*std::min_element(holders.begin(), holders.end(), [&](size_t a, size_t b) {
      return line.Time(a, counts[a] + 1) < line.Time(b, counts[b] + 1);
    })];
  }
  // The neighbours go on with their own.
  const auto place = [before = line.owner(items.begin - 1),
                      after = line.owner(items.end)](size_t n) {
    return n == before ? 0 : n == after ? 2 : 1;
  };
  std::stable_sort(holders.begin(), holders.end(),
                   [&place](size_t a, size_t b) { return place(a) < place(b); });
  int64_t next = items.begin;
  for (const size_t n : holders) {
    for (int64_t k = 0; k < counts[n]; ++k, ++next) {
      line.Give(next, n);
    }
  }
}

void AdoptOrphans(Line& line) {
  for (int64_t i = 0; i < line.total(); ++i) {
    const std::vector<size_t> holders = HoldersOf(line, i);
    if (line.owner(i) != kNobody || holders.empty()) {
      continue;
    }
    int64_t end = i + 1;
    while (end < line.total() && line.owner(end) == kNobody && HoldersOf(line, end) == holders) {
      ++end;
    }
    Adopt({i, end}, holders, line);
  }
}

// The item of `from` that leaves both with the fewest ranges: at an end where `to` goes on, at
// another end, or any. Absent where `to` stores none.
std::optional<int64_t> ItemToMove(const Line& line, size_t from, size_t to) {
  std::optional<int64_t> best;
  int best_rank = 0;
  for (int64_t i = 0; i < line.total(); ++i) {
    if (line.owner(i) != from || !line.stores(to, i)) {
      continue;
    }
    const size_t before = line.owner(i - 1);
    const size_t after = line.owner(i + 1);
    const int rank = before == to || after == to ? 3 : before != from || after != from ? 2 : 1;
    if (rank > best_rank) {
      best = i;
      best_rank = rank;
    }
  }
  return best;
}

// One item from a slow node to one that stores it and stays faster than that; false where there is
// none.
bool MoveToHolder(Line& line) {
  std::vector<size_t> by_time;
  for (size_t n = 0; n < line.num_nodes(); ++n) {
    by_time.push_back(n);
  }
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&line](size_t a, size_t b) { return line.Time(a) > line.Time(b); });
  for (const size_t from : by_time) {
    for (auto to = by_time.rbegin(); *to != from; ++to) {
      if (line.Time(*to, 1) >= line.Time(from)) {
        continue;
      }
      if (const std::optional<int64_t> item = ItemToMove(line, from, *to)) {
        line.Give(*item, *to);
        return true;
      }
    }
  }
  return false;
}

// How many items each node is to compute: in proportion to rates, among all but those that are not
// new and have less already.
std::vector<int64_t> Targets(const Line& line) {
  std::vector<int64_t> targets(line.num_nodes());
  std::vector<size_t> sharing;
  int64_t items = line.total();
  for (size_t n = 0; n < line.num_nodes(); ++n) {
    targets[n] = line.load(n);
    sharing.push_back(n);
  }
  while (true) {
    std::vector<double> rates;
    rates.reserve(sharing.size());
    for (const size_t n : sharing) {
      rates.push_back(line.node(n).rate);
    }
    const std::vector<int64_t> shares = Apportion(items, rates);
    std::vector<size_t> rest;
    for (size_t k = 0; k < sharing.size(); ++k) {
      const size_t n = sharing[k];
      targets[n] = line.node(n).is_new ? shares[k] : std::min(shares[k], line.load(n));
      if (line.node(n).is_new || shares[k] <= line.load(n)) {
        rest.push_back(n);
      } else {
        items -= line.load(n);
      }
    }
    if (rest.size() == sharing.size()) {
      return targets;
    }
    sharing = std::move(rest);
  }
}

// Chooses what nodes give away.
class Giving {
 public:
  Giving(const Line& line, const std::vector<int64_t>& targets)
      : line_(line), taken_(static_cast<size_t>(line.total()), false) {
    for (size_t n = 0; n < line.num_nodes(); ++n) {
      surplus_.push_back(line.node(n).is_new ? 0 : line.load(n) - targets[n]);
    }
    for (int64_t i = 0; i < line.total(); ++i) {
      taken_[static_cast<size_t>(i)] = line.owner(i) == kNobody;
    }
  }

  // The items that go to new nodes, rising.
  std::vector<int64_t> Choose() {
    const std::vector<Run> runs = line_.Runs();
    for (size_t r = 0; r + 1 < runs.size(); ++r) {
      JoinFree(runs[r], runs[r + 1]);
    }
    for (size_t r = 0; r + 1 < runs.size(); ++r) {
      if (GivesAllOf(runs[r]) && GivesAllOf(runs[r + 1])) {
        TakeEnd(runs[r]);
        TakeBegin(runs[r + 1]);
      }
    }
    for (size_t n = 0; n < line_.num_nodes(); ++n) {
      while (surplus_[n] > 0) {
        TakeAlone(n);
      }
    }
    std::vector<int64_t> items;
    for (int64_t i = 0; i < line_.total(); ++i) {
      if (IsTaken(i)) {
        items.push_back(i);
      }
    }
    return items;
  }

 private:
  bool IsTaken(int64_t i) const {
    return i >= 0 && i < line_.total() && taken_[static_cast<size_t>(i)];
  }
  // Whether the owner's whole surplus is in this range.
  bool GivesAllOf(const Run& run) const {
    return run.owner != kNobody && surplus_[run.owner] > 0 &&
           surplus_[run.owner] <= run.items.size();
  }
  void Take(size_t owner, ItemRange range) {
    std::fill(taken_.begin() + range.begin, taken_.begin() + range.end, true);
    surplus_[owner] -= range.size();
  }
  void TakeEnd(const Run& run) {
    Take(run.owner, {run.items.end - surplus_[run.owner], run.items.end});
  }
  void TakeBegin(const Run& run) {
    Take(run.owner, {run.items.begin, run.items.begin + surplus_[run.owner]});
  }
  // Beside what nobody computes, so that it becomes one range with that.
  void JoinFree(const Run& left, const Run& right) {
    if (right.owner == kNobody && GivesAllOf(left)) {
      TakeEnd(left);
    } else if (left.owner == kNobody && GivesAllOf(right)) {
      TakeBegin(right);
    }
  }
  // A whole range where one has the right size, else of the largest the end that lies beside
  // something that is taken, if one does.
  void TakeAlone(size_t n) {
    const std::vector<ItemRange> ranges =
        line_.Where([&](int64_t i) { return line_.owner(i) == n && !IsTaken(i); });
    const auto rank = [&](const ItemRange& range) {
      return std::pair(range.size() == surplus_[n], range.size());
    };
    const ItemRange range = *std::max_element(
        ranges.begin(), ranges.end(),
        [&](const ItemRange& a, const ItemRange& b) { return rank(a) < rank(b); });
    if (range.size() <= surplus_[n]) {
      Take(n, range);
    } else if (IsTaken(range.begin - 1) && !IsTaken(range.end)) {
      TakeBegin({n, range});
    } else {
      TakeEnd({n, range});
    }
  }

  const Line& line_;
  std::vector<int64_t> surplus_;
  std::vector<bool> taken_;
};

// In the order of the line, so that each new node gets few ranges.
void GiveToNew(const std::vector<int64_t>& items, const std::vector<int64_t>& targets, Line& line) {
  auto next = items.begin();
  for (size_t n = 0; n < line.num_nodes(); ++n) {
    if (line.node(n).is_new) {
      for (int64_t k = 0; k < targets[n] && next != items.end(); ++k, ++next) {
        line.Give(*next, n);
      }
    }
  }
}

// What one node alone stores goes to the new node that has least for its rate, range by range.
void CopyToNew(Line& line) {
  std::vector<int64_t> stored(line.num_nodes());
  for (size_t n = 0; n < line.num_nodes(); ++n) {
    stored[n] = line.load(n);
  }
  for (const Run& run : line.Runs()) {
    std::optional<size_t> best;
    const auto time = [&](size_t n) { return static_cast<double>(stored[n]) / line.node(n).rate; };
    for (size_t n = 0; n < line.num_nodes(); ++n) {
      if (line.node(n).is_new && n != run.owner && (!best || time(n) < time(*best))) {
        best = n;
      }
    }
    for (int64_t i = run.items.begin; best && i < run.items.end; ++i) {
      if (IsStoredOnce(line, i)) {
        line.Store(i, *best);
        ++stored[*best];
      }
    }
  }
}

}  // namespace

KeptShares ShareKeeping(int64_t total, std::span<const SharingNode> nodes, int64_t copies) {
  Line line(total, nodes);
  AdoptOrphans(line);
  // Every move takes time from a slower node; one an item and node is far more than is needed.
  for (int64_t left = total * std::ssize(nodes); left > 0 && MoveToHolder(line); --left) {
  }
  const bool any_new =
      std::any_of(nodes.begin(), nodes.end(), [](const SharingNode& node) { return node.is_new; });
  if (any_new) {
    const std::vector<int64_t> targets = Targets(line);
    GiveToNew(Giving(line, targets).Choose(), targets, line);
    if (copies > 1) {
      CopyToNew(line);
    }
  }
  KeptShares shares;
  for (size_t n = 0; n < nodes.size(); ++n) {
    shares.nodes.push_back(
        {line.Where([&](int64_t i) { return line.owner(i) == n; }),
         line.Where([&](int64_t i) { return line.stores(n, i) && line.owner(i) != n; })});
  }
  shares.lost = line.Where([&](int64_t i) { return line.owner(i) == kNobody; });
  shares.stored_once = line.Where([&](int64_t i) { return IsStoredOnce(line, i); });
  return shares;
}

}  // namespace shoal

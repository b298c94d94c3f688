#include "common/tokenizer/bpe.h"

#include <functional>
#include <queue>
#include <utility>

namespace shoal {
namespace {

// A part of the piece: bytes [begin, end), linked to its neighbours by index; -1 is none.
struct Part {
  size_t begin = 0;
  size_t end = 0;
  int previous = -1;
  int next = -1;
};

// A pair that could be merged. It is stale once either part has changed, which shows in where they
// begin and end.
struct Merge {
  int32_t rank = 0;
  size_t begin = 0;
  size_t end = 0;
  int left = 0;

  bool operator>(const Merge& other) const {
    return std::pair(rank, begin) > std::pair(other.rank, other.begin);
  }
};

}  // namespace

BpeRanks::BpeRanks(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  ranks_.reserve(tokens_.size());
  for (size_t rank = 0; rank < tokens_.size(); ++rank) {
    ranks_.emplace(tokens_[rank], static_cast<int32_t>(rank));
  }
}

int32_t BpeRanks::Rank(absl::string_view bytes) const {
  const auto it = ranks_.find(bytes);
  return it == ranks_.end() ? -1 : it->second;
}

void BpeRanks::Encode(absl::string_view piece, std::vector<int32_t>& ids) const {
  if (const int32_t rank = Rank(piece); rank >= 0) {
    ids.push_back(rank);
    return;
  }
  const auto count = static_cast<int>(piece.size());
  std::vector<Part> parts(piece.size());
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    parts[at] = {at, at + 1, i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Merge, std::vector<Merge>, std::greater<>> merges;
  const auto offer = [&](int left) {
    if (left < 0 || parts[static_cast<size_t>(left)].next < 0) {
      return;
    }
    const Part& a = parts[static_cast<size_t>(left)];
    const Part& b = parts[static_cast<size_t>(a.next)];
    if (const int32_t rank = Rank(piece.substr(a.begin, b.end - a.begin)); rank >= 0) {
      merges.push({rank, a.begin, b.end, left});
    }
  };
  for (int i = 0; i + 1 < count; ++i) {
    offer(i);
  }
  while (!merges.empty()) {
    const Merge merge = merges.top();
    merges.pop();
    Part& a = parts[static_cast<size_t>(merge.left)];
    if (a.end == a.begin || a.next < 0 || parts[static_cast<size_t>(a.next)].end != merge.end) {
      continue;
    }
    Part& b = parts[static_cast<size_t>(a.next)];
    a.end = b.end;
    a.next = b.next;
    b.begin = b.end;  // empty: gone
    if (a.next >= 0) {
      parts[static_cast<size_t>(a.next)].previous = merge.left;
    }
    offer(a.previous);
    offer(merge.left);
  }
  for (int i = 0; i >= 0; i = parts[static_cast<size_t>(i)].next) {
    const Part& part = parts[static_cast<size_t>(i)];
    ids.push_back(Rank(piece.substr(part.begin, part.end - part.begin)));
  }
}

}  // namespace shoal

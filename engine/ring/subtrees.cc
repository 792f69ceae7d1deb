#include "engine/ring/subtrees.h"

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"
#include "kernels/ops/shards.h"

namespace annulus {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;

// [leaf] the ring index that holds its pages.
std::vector<int> HoldersOf(std::span<const PageEntry> entries, std::span<const int32_t> ring,
                           int page_tokens, int shards) {
  std::vector<int> holders(shards, kNobody);
  for (const PageEntry& entry : entries) {
    const auto index =
        static_cast<int>(std::find(ring.begin(), ring.end(), entry.rank) - ring.begin());
    ANNULUS_CHECK(index < static_cast<int>(ring.size()))
        << "rank " << entry.rank << " holds a page and is not in the ring";
    int& holder = holders[LeafOfPage(entry.first_position / page_tokens, shards)];
    holder = holder == kNobody || holder == index ? index : kSeveral;
  }
  return holders;
}

// Adds `subtree` to its holder, or its halves to theirs.
void Cut(const std::vector<int>& holders, const Subtree& subtree,
         std::vector<std::vector<Subtree>>& cut) {
  int holder = kNobody;
  for (int leaf = subtree.first; leaf < subtree.end(); ++leaf) {
    if (holders[leaf] == kNobody || holders[leaf] == holder) continue;
    if (holder != kNobody) {
      Cut(holders, {subtree.first, subtree.leaves / 2}, cut);
      Cut(holders, {subtree.first + subtree.leaves / 2, subtree.leaves / 2}, cut);
      return;
    }
    holder = holders[leaf];
  }
  if (holder != kNobody) cut[holder].push_back(subtree);
}

}  // namespace

Subtree Around(const Subtree& a, const Subtree& b) {
  Subtree around = a.leaves >= b.leaves ? a : b;
  while (around.first > std::min(a.first, b.first) || around.end() < std::max(a.end(), b.end())) {
    around.leaves *= 2;
    around.first &= ~(around.leaves - 1);
  }
  return around;
}

std::vector<std::vector<Subtree>> SubtreesOf(std::span<const PageEntry> entries,
                                             std::span<const int32_t> ring, int page_tokens,
                                             int shards) {
  const Subtree whole{0, shards};
  std::vector<std::vector<Subtree>> cut(ring.size());
  if (ring.size() == 1) {
    cut[0] = {whole};
    return cut;
  }
  const std::vector<int> holders = HoldersOf(entries, ring, page_tokens, shards);
  if (std::find(holders.begin(), holders.end(), kSeveral) == holders.end()) {
    Cut(holders, whole, cut);
    return cut;
  }
  for (size_t i = 0; i < ring.size(); ++i) {
    const bool holds = std::any_of(entries.begin(), entries.end(),
                                   [&](const PageEntry& entry) { return entry.rank == ring[i]; });
    if (holds) cut[i] = {whole};
  }
  return cut;
}

StateCounts StatesOfRing(int degree, int shards) {
  std::vector<int> holders(shards);
  for (int leaf = 0; leaf < shards; ++leaf) holders[leaf] = RingIndexOfLeaf(leaf, degree, shards);
  std::vector<std::vector<Subtree>> cut(degree);
  Cut(holders, {0, shards}, cut);
  StateCounts counts;
  std::vector<Subtree> all;
  for (const std::vector<Subtree>& each : cut) {
    counts.states = std::max(counts.states, static_cast<int>(each.size()));
    all.insert(all.end(), each.begin(), each.end());
  }
  for (int index = 0; index < degree; ++index) {
    StateMerger merger(all);
    for (int s = 0; s < static_cast<int>(std::bit_ceil(static_cast<uint32_t>(degree))); ++s) {
      if ((index ^ s) >= degree) continue;
      for (const Subtree& subtree : cut[index ^ s]) merger.Take(subtree);
      merger.Settle([](int, int) {});
    }
    counts.kept_slots = std::max(counts.kept_slots, merger.slots());
  }
  return counts;
}

StateCounts MostStates(int ranks, int shards) {
  StateCounts most;
  for (int degree = 2; degree <= std::min(ranks, shards); ++degree) {
    if (!IsUsefulDegree(degree, ranks, shards)) continue;
    const StateCounts counts = StatesOfRing(degree, shards);
    most.states = std::max(most.states, counts.states);
    most.kept_slots = std::max(most.kept_slots, counts.kept_slots);
  }
  return most;
}

// Whether nothing else that is kept or expected has a leaf of `around`, so that the two are
// neighbours in the tree.
bool StateMerger::Adjacent(const Subtree& around, const Kept* a, const Kept* b) const {
  for (const Subtree& other : expected_) {
    if (other.Meets(around)) return false;
  }
  for (const Kept& other : kept_) {
    if (&other != a && &other != b && other.subtree.Meets(around)) return false;
  }
  return true;
}

int StateMerger::FreeSlot() const {
  int slot = 0;
  while (
      std::any_of(kept_.begin(), kept_.end(), [slot](const Kept& k) { return k.slot == slot; })) {
    ++slot;
  }
  return slot;
}

StateMerger::Place StateMerger::Take(const Subtree& subtree) {
  const auto found = std::find(expected_.begin(), expected_.end(), subtree);
  ANNULUS_CHECK(found != expected_.end())
      << "leaves " << subtree.first << " to " << subtree.end() << " were not expected";
  expected_.erase(found);
  for (Kept& kept : kept_) {
    if (kept.written) continue;
    const Subtree around = Around(kept.subtree, subtree);
    if (kept.subtree != subtree && !Adjacent(around, &kept, nullptr)) continue;
    kept.subtree = around;
    kept.written = true;
    return {kept.slot, true};
  }
  kept_.push_back({subtree, FreeSlot(), true});
  slots_ = std::max(slots_, kept_.back().slot + 1);
  return {kept_.back().slot, false};
}

bool StateMerger::NextMerge(std::pair<int, int>& slots) {
  for (Kept& a : kept_) {
    for (Kept& b : kept_) {
      if (a.slot >= b.slot) continue;
      const Subtree around = Around(a.subtree, b.subtree);
      if (a.subtree != b.subtree && !Adjacent(around, &a, &b)) continue;
      slots = {a.slot, b.slot};
      a.subtree = around;
      kept_.erase(kept_.begin() + (&b - kept_.data()));
      return true;
    }
  }
  return false;
}

}  // namespace annulus

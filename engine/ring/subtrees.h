#ifndef ANNULUS_ENGINE_RING_SUBTREES_H_
#define ANNULUS_ENGINE_RING_SUBTREES_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// A subtree of the tree in which shards are merged (kernels/ops/shards.h): the leaves
// [first, first + leaves), a power of two of them.
struct Subtree {
  int32_t first = 0;
  int32_t leaves = 1;

  int32_t end() const { return first + leaves; }
  bool Meets(const Subtree& other) const { return first < other.end() && other.first < end(); }
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// The smallest subtree that has the leaves of both.
Subtree Around(const Subtree& a, const Subtree& b);

// [ring index] The fewest subtrees that together have all pages of `entries` on that rank and none
// of another: one where the ring divides the shards and was placed by PlaceOnRing. If the pages of
// some shard lie on several ranks, each rank with pages has the whole tree; its states then merge
// in the order in which they come, exactly but not with the same bits as on other rings.
std::vector<std::vector<Subtree>> SubtreesOf(std::span<const PageEntry> entries,
                                             std::span<const int32_t> ring, int page_tokens,
                                             int shards);

// What the layers of a step need at most.
struct StateCounts {
  int states = 1;      // subtrees of one rank
  int kept_slots = 1;  // states of a row that are kept at a time, the result included
};
// Of a ring that PlaceOnRing has placed. `degree`: at most `shards`.
StateCounts StatesOfRing(int degree, int shards);
// Of all rings that an engine of `ranks` makes (IsUsefulDegree).
StateCounts MostStates(int ranks, int shards);

// In which order an item's rows merge the states of subtrees that come one after the other, with as
// few kept at a time as the order of arrival allows. States are in numbered slots; the result ends
// in slot 0. Any subset of the subtrees needs at most the slots of them all.
class StateMerger {
 public:
  // `expected`: all subtrees that will be taken.
  explicit StateMerger(std::vector<Subtree> expected) : expected_(std::move(expected)) {}

  struct Place {
    int slot = 0;
    bool merges = false;  // with the state that is there
  };
  // Where the state of `subtree`, one of those expected, goes. No two places of the calls between
  // two calls of Settle are the same.
  Place Take(const Subtree& subtree);

  // Calls merge(into, from) with slots for every merge that is possible now.
  template <class Merge>
  void Settle(const Merge& merge) {
    for (Kept& kept : kept_) kept.written = false;
    std::pair<int, int> slots;
    while (NextMerge(slots)) merge(slots.first, slots.second);
  }

  // Slots that have been in use so far.
  int slots() const { return slots_; }

 private:
  struct Kept {
    Subtree subtree;
    int slot;
    bool written;  // since the last Settle
  };

  bool Adjacent(const Subtree& around, const Kept* a, const Kept* b) const;
  bool NextMerge(std::pair<int, int>& slots);
  int FreeSlot() const;

  std::vector<Subtree> expected_;
  std::vector<Kept> kept_;
  int slots_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_SUBTREES_H_

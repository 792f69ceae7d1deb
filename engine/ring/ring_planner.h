#ifndef ANNULUS_ENGINE_RING_RING_PLANNER_H_
#define ANNULUS_ENGINE_RING_RING_PLANNER_H_

#include <vector>

#include "engine/ring/ring_plan.h"
#include "engine/ring/subtrees.h"

namespace annulus {

struct RingAttentionConfig;

// Lays out a RingPlan for the rank `rank` of `ranks`. Both ends of a message call it on the same
// items and tables, so they agree on its parts without a word.
class RingPlanner {
 public:
  RingPlanner(const RingAttentionConfig& config, int rank, int ranks, const RingLayer& layer)
      : config_(config), rank_(rank), ranks_(ranks), layer_(layer) {}

  void LayOut(RingPlan& plan);

 private:
  // An item of the step's one call of attention: rows (own or a peer's) against pages (own or a
  // peer's) of a subtree.
  struct Work {
    size_t item = 0;
    int runner = 0;
    ConstMatrixView query;
    int peer = -1;  // that sends the pages; -1: own ones
    size_t first_view = 0;
    size_t view_count = 0;
    const PageLists* lists = nullptr;
    Subtree subtree;
    AttentionState state;  // a peer's; own rows get theirs when the work is listed
  };

  bool Sees(size_t i, int runner, int holder) const;
  bool Visits(size_t i, int runner, int holder, int s) const;
  ConstMatrixView OwnRows(const ConstMatrixView& all, const RingItem& item) const;
  AttentionState OwnState(const RingItem& item, int slot = 0) const;
  int QueryColumns() const;
  int KeyColumns() const;
  int ValueColumns() const;

  static void AddRows(const ConstMatrixView& rows, RingPlan::Message& message);
  void ListQueries(int peer, RingPlan::Queries& queries);
  void ListPages(int peer, int s, RingPlan::Message& pages) const;
  void ListStep(int s, RingPlan::Step& step);
  void ListForward(int peer, int s, RingPlan::Step& step);
  void ListServed(size_t i, int other, RingPlan::Step& step, RingPlan::PeerStep& with);
  void AddOwnViews(const std::vector<ShardPage>& pages, RingPlan::Step& step) const;
  void AddOwnWork(size_t i, int holder, int peer, size_t first, size_t count);
  void ListItems(RingPlan::Step& step);
  void ListSentStates(int peer, RingPlan::Step& step) const;
  void ListReturned(int peer, int s, RingPlan::PeerStep& with);
  void Settle(size_t i, std::vector<RingPlan::Merge>& merges);

  const RingAttentionConfig& config_;
  const int rank_;
  const int ranks_;
  const RingLayer& layer_;
  std::vector<StateMerger> mergers_;              // [item] of own rows
  std::vector<std::vector<size_t>> first_query_;  // [rank][item] in the parts of its queries
  std::vector<Work> work_;                        // of the step that is being laid out
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_PLANNER_H_

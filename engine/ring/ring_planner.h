#ifndef ANNULUS_ENGINE_RING_RING_PLANNER_H_
#define ANNULUS_ENGINE_RING_RING_PLANNER_H_

#include <vector>

#include "engine/ring/ring_plan.h"
#include "engine/ring/subtrees.h"

namespace annulus {

struct RingAttentionConfig;

// Lays out a RingPlan for `rank` of `ranks`. Both ends of a message run it on the same items and
// tables, so they agree on the parts without negotiation.
class RingPlanner {
 public:
  RingPlanner(const RingAttentionConfig& config, int rank, int ranks, const RingLayer& layer)
      : config_(config), rank_(rank), ranks_(ranks), layer_(layer) {}

  void LayOut(RingPlan& plan);

 private:
  // An item of the step's attention call: rows (own or a peer's) against the pages (own or a
  // peer's) of a subtree.
  struct Work {
    size_t item = 0;
    int runner = 0;
    ConstMatrixView query;
    int peer = -1;  // the peer that sends the pages; -1: own pages
    size_t first_view = 0;
    size_t view_count = 0;
    const PageLists* lists = nullptr;
    Subtree subtree;
    AttentionState state;  // for a peer's rows; own rows get theirs when the item is listed
  };

  bool Sees(size_t i, int runner, int holder) const;
  bool Visits(size_t i, int runner, int holder, int s) const;
  ConstMatrixView OwnRows(const ConstMatrixView& all, const RingItem& item) const;
  AttentionState OwnState(const RingItem& item, int slot = 0) const;
  AttentionState ServedState(int64_t first, int64_t rows) const;
  const RingShape& Shape() const;
  int QueryColumns() const;
  int KeyColumns() const;
  int ValueColumns() const;

  static void SetParts(std::vector<RingPart> parts, RingPlan::Message& message);
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
  std::vector<StateMerger> mergers_;  // [item] for own rows
  // [rank][item] index among the parts of the peer's queries.
  std::vector<std::vector<size_t>> first_query_;
  std::vector<Work> work_;  // for the current ring step
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_PLANNER_H_

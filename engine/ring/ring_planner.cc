#include "engine/ring/ring_planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/ring/ring_attention.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

AttentionState Rows(const AttentionState& state, int64_t first, int64_t count) {
  return {state.o + first * state.heads * state.v_dim, state.lse + first * state.heads, count,
          state.heads, state.v_dim};
}

size_t OutputBytes(const AttentionState& state) {
  return static_cast<size_t>(state.rows) * state.heads * state.v_dim * sizeof(float);
}

size_t LseBytes(const AttentionState& state) {
  return static_cast<size_t>(state.rows) * state.heads * sizeof(float);
}

size_t RowBytes(int columns) { return static_cast<size_t>(columns) * sizeof(float); }

const std::byte* Bytes(const float* data) { return reinterpret_cast<const std::byte*>(data); }

RingPart PartOfRows(const ConstMatrixView& rows) {
  ANNULUS_CHECK(rows.stride == rows.cols) << "rows of a message are dense";
  return {Bytes(rows.data), static_cast<size_t>(rows.rows) * RowBytes(static_cast<int>(rows.cols))};
}

}  // namespace

// True when rows that `runner` runs see something that `holder` holds; one of them is this rank.
bool RingPlanner::Sees(size_t i, int runner, int holder) const {
  const ItemShards& shards = layer_.shards[i];
  return runner == layer_.items[i].index ? !shards.held_by[holder].empty()
                                         : !shards.seen_by[runner].empty();
}

// The same, and ring step s is when they visit it.
bool RingPlanner::Visits(size_t i, int runner, int holder, int s) const {
  const RingItem& item = layer_.items[i];
  return s < item.steps() && RingItem::Visits(runner, s) == holder && Sees(i, runner, holder);
}

ConstMatrixView RingPlanner::OwnRows(const ConstMatrixView& all, const RingItem& item) const {
  return all.row_range(item.first_row, item.own_rows());
}

// Of an item's own rows: the result is slot 0.
AttentionState RingPlanner::OwnState(const RingItem& item, int slot) const {
  ANNULUS_CHECK(slot < item.kept_slots) << "a state without memory";
  if (slot == 0) return Rows(layer_.state, item.first_row, item.own_rows());
  return Rows(layer_.kept, item.kept_offset + (slot - 1) * item.own_rows(), item.own_rows());
}

// Of rows computed for a peer, which are dense among themselves.
AttentionState RingPlanner::ServedState(int64_t first, int64_t rows) const {
  AttentionState state = Rows(layer_.served, 0, rows);
  const int64_t columns = int64_t{state.heads} * state.v_dim;
  state.o += first * (layer_.served_columns > 0 ? layer_.served_columns : columns);
  state.lse += first * (layer_.served_heads > 0 ? layer_.served_heads : state.heads);
  return state;
}

const RingShape& RingPlanner::Shape() const { return ShapeOf(layer_, config_); }
int RingPlanner::QueryColumns() const { return Shape().heads * Shape().shape.k_dim; }
int RingPlanner::KeyColumns() const { return Shape().shape.kv_heads * Shape().shape.k_dim; }
int RingPlanner::ValueColumns() const { return Shape().shape.kv_heads * Shape().shape.v_dim; }

void RingPlanner::LayOut(RingPlan& plan) {
  int steps = 0;
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    steps = std::max(steps, item.steps());
    mergers_.emplace_back(item.own_rows() == 0 ? std::vector<Subtree>()
                                               : SubtreesSeen(item, layer_.shards[i]));
  }
  plan.queries_.assign(static_cast<size_t>(ranks_), {});
  first_query_.assign(static_cast<size_t>(ranks_), {});
  for (int peer = 0; steps > 0 && peer < ranks_; ++peer) {
    if (peer != rank_) ListQueries(peer, plan.queries_[peer]);
  }
  plan.steps_ = std::vector<RingPlan::Step>(static_cast<size_t>(steps));
  for (int s = 0; s < steps; ++s) ListStep(s, plan.steps_[s]);
  plan.laid_out_ = true;
}

void RingPlanner::SetParts(std::vector<RingPart> parts, RingPlan::Message& message) {
  for (const RingPart& part : parts) message.bytes += static_cast<int64_t>(part.bytes);
  message.parts = std::move(parts);
}

// Own queries for `peer`, if it holds keys that they attend, and the parts of its queries.
void RingPlanner::ListQueries(int peer, RingPlan::Queries& queries) {
  RingPlan::Message& message = queries.message;
  std::vector<RingPart> parts;
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    const int other = item.index_of(peer);
    first_query_[peer].push_back(message.expected.size());
    if (item.mode != RingMode::kPassQ || other < 0) continue;
    if (Sees(i, item.index, other)) {
      parts.push_back(PartOfRows(OwnRows(layer_.query, item)));
      if (layer_.stores && item.carries_row(other)) {
        parts.push_back(PartOfRows(OwnRows(layer_.key, item)));
        parts.push_back(PartOfRows(OwnRows(layer_.value, item)));
      }
    }
    if (!Sees(i, other, item.index)) continue;
    const size_t rows = item.positions[other].size();
    message.expected.push_back(rows * RowBytes(QueryColumns()));
    if (!layer_.stores || !item.carries_row(item.index)) continue;
    message.expected.push_back(rows * RowBytes(KeyColumns()));
    message.expected.push_back(rows * RowBytes(ValueColumns()));
  }
  SetParts(std::move(parts), message);
}

// The own pages that rows of `peer` visit at ring step s, and its pages that own rows visit.
void RingPlanner::ListPages(int peer, int s, RingPlan::Message& pages) const {
  std::vector<RingPart> parts;
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    const int other = item.index_of(peer);
    if (item.mode != RingMode::kPassKv || other < 0) continue;
    if (Visits(i, other, item.index, s)) {
      for (const ShardPage& page : layer_.shards[i].seen_by[other]) {
        parts.push_back({layer_.page_data(page.page), Shape().layer_page_bytes});
      }
    }
    if (!Visits(i, item.index, other, s)) continue;
    pages.expected.insert(pages.expected.end(), layer_.shards[i].held_by[other].size(),
                          Shape().layer_page_bytes);
  }
  SetParts(std::move(parts), pages);
}

void RingPlanner::ListStep(int s, RingPlan::Step& step) {
  work_.clear();
  step.peers.resize(static_cast<size_t>(ranks_));
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    ListPages(peer, s, step.peers[peer].pages);
    ListForward(peer, s, step);
  }
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    if (item.own_rows() == 0 || !Visits(i, item.index, item.index, s)) continue;
    const std::vector<ShardPage>& own = layer_.shards[i].held_by[item.index];
    AddOwnWork(i, item.index, -1, step.views.size(), own.size());
    AddOwnViews(own, step);
  }
  ListItems(step);
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    ListSentStates(peer, step);
    ListReturned(peer, s, step.peers[peer]);
  }
}

// What becomes possible with what `peer` sends for ring step s.
void RingPlanner::ListForward(int peer, int s, RingPlan::Step& step) {
  RingPlan::PeerStep& with = step.peers[peer];
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    const int other = item.index_of(peer);
    if (other < 0) continue;
    if (item.mode == RingMode::kPassKv && Visits(i, item.index, other, s)) {
      const std::vector<ShardPage>& theirs = layer_.shards[i].held_by[other];
      AddOwnWork(i, other, peer, with.views.size(), theirs.size());
      for (const ShardPage& page : theirs) {
        with.views.push_back({nullptr, page.first_position, page.tokens});
      }
    } else if (item.mode == RingMode::kPassQ && Visits(i, other, item.index, s)) {
      ListServed(i, other, step, with);
    }
  }
}

// Rows of ring index `other` against the own pages that they see.
void RingPlanner::ListServed(size_t i, int other, RingPlan::Step& step, RingPlan::PeerStep& with) {
  const RingItem& item = layer_.items[i];
  const ItemShards& shards = layer_.shards[i];
  const std::vector<ShardPage>& pages = shards.seen_by[other];
  const std::vector<Subtree>& subtrees = shards.subtrees[item.index];
  const auto rows = static_cast<int64_t>(item.positions[other].size());
  RingPlan::Served served;
  served.first_item = work_.size();
  served.items = subtrees.size();
  served.part = first_query_[item.ring[other]][i];
  if (layer_.stores && item.carries_row(item.index)) {
    const ShardPage& page = shards.seen_by[item.home_index()].back();
    served.page = layer_.page_data(page.page);
    served.slot = item.begin - page.first_position;
    served.rows = static_cast<int32_t>(rows);
  }
  with.served.push_back(served);
  int n = 0;
  for (const Subtree& subtree : subtrees) {
    Work& work = work_.emplace_back();
    work.item = i;
    work.runner = other;
    work.query = {nullptr, rows, QueryColumns(), QueryColumns()};
    work.first_view = step.views.size();
    work.view_count = pages.size();
    work.lists = &shards.seen_lists[other];
    work.subtree = subtree;
    work.state = ServedState(item.served_offset(other, n++), rows);
  }
  AddOwnViews(pages, step);
}

void RingPlanner::AddOwnViews(const std::vector<ShardPage>& pages, RingPlan::Step& step) const {
  for (const ShardPage& page : pages) {
    step.views.push_back({layer_.page_data(page.page), page.first_position, page.tokens});
  }
}

// Own rows against pages of `holder`, which `peer` sends.
void RingPlanner::AddOwnWork(size_t i, int holder, int peer, size_t first, size_t count) {
  const RingItem& item = layer_.items[i];
  for (const Subtree& subtree : layer_.shards[i].subtrees[holder]) {
    Work& work = work_.emplace_back();
    work.item = i;
    work.runner = item.index;
    work.query = OwnRows(layer_.query, item);
    work.peer = peer;
    work.first_view = first;
    work.view_count = count;
    work.lists = &layer_.shards[i].held_lists[holder];
    work.subtree = subtree;
  }
}

// The call of attention, now that all views are there.
void RingPlanner::ListItems(RingPlan::Step& step) {
  for (const Work& work : work_) {
    const RingItem& ring = layer_.items[work.item];
    const std::vector<KvPageView>& views = work.peer < 0 ? step.views : step.peers[work.peer].views;
    AttentionItem item;
    item.query = work.query;
    item.positions = ring.positions[work.runner];
    item.pages = std::span(views).subspan(work.first_view, work.view_count);
    item.blocks = work.lists->view();
    if (layer_.window == 0) item.branches = ring.branches;
    if (work.subtree.leaves < config_.shards) {
      item.first_leaf = work.subtree.first;
      item.leaves = work.subtree.leaves;
    }
    item.state = work.state;
    if (work.runner == ring.index) {
      const StateMerger::Place place = mergers_[work.item].Take(work.subtree);
      item.state = OwnState(ring, place.slot);
      item.merges = place.merges;
    }
    step.items.push_back(item);
    step.own_pages.push_back(work.peer < 0 ? 1 : 0);
  }
  for (const Work& work : work_) {
    if (work.runner == layer_.items[work.item].index) Settle(work.item, step.merges);
  }
}

// Merges the states of item `i` that are neighbours in the tree by now.
void RingPlanner::Settle(size_t i, std::vector<RingPlan::Merge>& merges) {
  mergers_[i].Settle([&](int into, int from) {
    const RingItem& item = layer_.items[i];
    merges.emplace_back(OwnState(item, into), OwnState(item, from));
  });
}

// The states of rows of `peer` that were attended here.
void RingPlanner::ListSentStates(int peer, RingPlan::Step& step) const {
  std::vector<RingPart> parts;
  for (const Work& work : work_) {
    const RingItem& item = layer_.items[work.item];
    if (work.runner == item.index || item.ring[work.runner] != peer) continue;
    parts.push_back({Bytes(work.state.o), OutputBytes(work.state)});
    parts.push_back({Bytes(work.state.lse), LseBytes(work.state)});
  }
  SetParts(std::move(parts), step.peers[peer].states);
}

// The states of own rows that `peer` has attended at ring step s, in the order in which they come.
void RingPlanner::ListReturned(int peer, int s, RingPlan::PeerStep& with) {
  for (size_t i = 0; i < layer_.items.size(); ++i) {
    const RingItem& item = layer_.items[i];
    const int other = item.index_of(peer);
    if (item.mode != RingMode::kPassQ || other < 0 || !Visits(i, item.index, other, s)) continue;
    const AttentionState own = OwnState(item);
    for (const Subtree& subtree : layer_.shards[i].subtrees[other]) {
      with.states.expected.push_back(OutputBytes(own));
      with.states.expected.push_back(LseBytes(own));
      const StateMerger::Place place = mergers_[i].Take(subtree);
      RingPlan::Returned& returned = with.returned.emplace_back();
      returned.into = OwnState(item, place.slot);
      returned.merged = place.merges;
      Settle(i, returned.merges);
    }
  }
}

}  // namespace annulus

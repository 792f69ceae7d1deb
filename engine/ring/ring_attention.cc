#include "engine/ring/ring_attention.h"

#include <algorithm>
#include <utility>

#include "engine/ring/ring_round.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

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

const std::byte* Bytes(const float* data) { return reinterpret_cast<const std::byte*>(data); }
const float* Floats(const RingPart& part) { return reinterpret_cast<const float*>(part.data); }

}  // namespace

RingAttention::RingAttention(RingChannel& channel, Backend& backend, const OpTable& ops,
                             Stream& stream, const RingAttentionConfig& config)
    : link_(channel, stream, config.timeout, config.heartbeat),
      backend_(backend),
      ops_(ops),
      stream_(stream),
      config_(config),
      timer_(backend) {}

absl::Status RingAttention::CountSeconds() {
  ANNULUS_RETURN_IF_ERROR(link_.CountStreamWaits());
  ANNULUS_ASSIGN_OR_RETURN(const double seconds, timer_.Take());
  link_.counters().compute_seconds += seconds;
  return absl::OkStatus();
}

RingCounters RingAttention::TakeCounters() {
  timer_.Forget();
  return std::exchange(link_.counters(), RingCounters());
}

// The state of one Run: which parts go where in which ring step.
class RingAttention::LayerRun {
 public:
  LayerRun(RingAttention& ring, const RingLayer& layer)
      : ring_(ring), layer_(layer), queries_(ring.link_.size()), round_(ring.link_) {
    for (size_t i = 0; i < layer.items.size(); ++i) {
      mergers_.emplace_back(layer.items[i].own_rows() == 0
                                ? std::vector<Subtree>()
                                : SubtreesSeen(layer.items[i], layer.shards[i]));
    }
  }

  absl::Status Run() {
    int steps = 0;
    for (const RingItem& item : layer_.items) steps = std::max(steps, item.steps());
    if (steps == 0) return absl::OkStatus();
    // The rounds are: queries and pages 0, then for each step pages s + 1 and states s. All ranks
    // keep to this order, so a transport may match messages by it alone.
    ANNULUS_RETURN_IF_ERROR(AddQueries());
    ANNULUS_RETURN_IF_ERROR(AddPages(0));
    ANNULUS_RETURN_IF_ERROR(round_.Post());
    ANNULUS_RETURN_IF_ERROR(ReceiveForward(0));
    for (int s = 0; s < steps; ++s) {
      if (s + 1 < steps) {
        ANNULUS_RETURN_IF_ERROR(AddPages(s + 1));
        ANNULUS_RETURN_IF_ERROR(round_.Post());
      }
      ANNULUS_RETURN_IF_ERROR(Attend());
      ANNULUS_RETURN_IF_ERROR(AddStates(s));
      ANNULUS_RETURN_IF_ERROR(round_.Post());
      work_.clear();
      views_.clear();
      if (s + 1 < steps) ANNULUS_RETURN_IF_ERROR(ReceiveForward(s + 1));
      ANNULUS_RETURN_IF_ERROR(ReceiveStates(s));
    }
    return absl::OkStatus();
  }

 private:
  // One attention call's item: rows (own or a peer's) against pages (own or a peer's) of a subtree.
  struct Work {
    size_t item = 0;
    int runner = 0;
    ConstMatrixView query;
    size_t first_view = 0;  // in views_
    size_t view_count = 0;
    const PageLists* lists = nullptr;
    Subtree subtree;
    AttentionState state;  // a peer's; own rows get theirs in Attend
  };

  // What one peer asks this rank to attend, of all items.
  struct Queries {
    bool received = false;
    std::vector<size_t> bytes;  // [part]
    std::vector<size_t> first;  // [item] in parts
    std::vector<RingPart> parts;
  };

  enum Kind : uint64_t { kPages = 0, kState = 1, kQuery = 2 };
  uint64_t Tag(int s, Kind kind) const {
    return layer_.tag | (static_cast<uint64_t>(s) << 2) | kind;
  }

  // True when rows that `runner` runs see something that `holder` holds; one of them is this rank.
  bool Sees(size_t i, int runner, int holder) const {
    const ItemShards& shards = layer_.shards[i];
    return runner == layer_.items[i].index ? !shards.held_by[holder].empty()
                                           : !shards.seen_by[runner].empty();
  }

  // The same, and ring step s is when they visit it.
  bool Visits(size_t i, int runner, int holder, int s) const {
    const RingItem& item = layer_.items[i];
    return s < item.steps() && RingItem::Visits(runner, s) == holder && Sees(i, runner, holder);
  }

  ConstMatrixView OwnRows(const ConstMatrixView& all, const RingItem& item) const {
    return all.row_range(item.first_row, item.own_rows());
  }

  size_t RowBytes(int columns) const { return static_cast<size_t>(columns) * sizeof(float); }
  int QueryColumns() const { return ring_.config_.heads * ring_.config_.shape.k_dim; }
  int KeyColumns() const { return ring_.config_.shape.kv_heads * ring_.config_.shape.k_dim; }
  int ValueColumns() const { return ring_.config_.shape.kv_heads * ring_.config_.shape.v_dim; }

  absl::StatusOr<std::vector<RingPart>> Receive(int peer, int s, Kind kind,
                                                const std::vector<size_t>& bytes) {
    return ring_.link_.Receive(peer, Tag(s, kind), bytes);
  }

  void AddRows(const ConstMatrixView& rows, std::vector<RingPart>& parts) {
    const size_t bytes = static_cast<size_t>(rows.rows) * RowBytes(static_cast<int>(rows.cols));
    ANNULUS_CHECK(rows.stride == rows.cols) << "rows of a message are dense";
    parts.push_back({Bytes(rows.data), bytes});
    ring_.link_.counters().bytes_pass_q += static_cast<int64_t>(bytes);
  }

  // Own queries, to all who hold what they see. A peer attends them at the ring step of their
  // visit; where it has nothing before that it starts at once, so the holders of a few rows' keys
  // work side by side.
  absl::Status AddQueries() {
    std::span<std::byte> slot = layer_.slots.queries;
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      if (peer == ring_.link_.rank()) continue;
      std::vector<RingPart> parts;
      for (size_t i = 0; i < layer_.items.size(); ++i) {
        const RingItem& item = layer_.items[i];
        const int other = item.index_of(peer);
        if (item.mode != RingMode::kPassQ || other < 0 || !Sees(i, item.index, other)) continue;
        AddRows(OwnRows(layer_.query, item), parts);
        if (!item.carries_row(other)) continue;
        AddRows(OwnRows(layer_.key, item), parts);
        AddRows(OwnRows(layer_.value, item), parts);
      }
      ListQueries(peer);
      ANNULUS_RETURN_IF_ERROR(
          round_.Add(peer, Tag(0, kQuery), std::move(parts), queries_[peer].bytes, slot));
    }
    return absl::OkStatus();
  }

  // The parts of the queries of `peer`.
  void ListQueries(int peer) {
    Queries& queries = queries_[peer];
    for (size_t i = 0; i < layer_.items.size(); ++i) {
      const RingItem& item = layer_.items[i];
      const int other = item.index_of(peer);
      queries.first.push_back(queries.bytes.size());
      if (item.mode != RingMode::kPassQ || other < 0 || !Sees(i, other, item.index)) continue;
      const size_t rows = item.positions[other].size();
      queries.bytes.push_back(rows * RowBytes(QueryColumns()));
      if (!item.carries_row(item.index)) continue;
      queries.bytes.push_back(rows * RowBytes(KeyColumns()));
      queries.bytes.push_back(rows * RowBytes(ValueColumns()));
    }
  }

  // Takes the queries of `peer`, which it sends before all else: called ahead of any Receive.
  absl::Status TakeQueries(int peer) {
    Queries& queries = queries_[peer];
    if (std::exchange(queries.received, true) || queries.bytes.empty()) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(queries.parts, Receive(peer, 0, kQuery, queries.bytes));
    return absl::OkStatus();
  }

  // The pages that peers' rows visit here at ring step s.
  absl::Status AddPages(int s) {
    std::span<std::byte> slot = layer_.slots.pages[s % 2];
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      if (peer == ring_.link_.rank()) continue;
      std::vector<RingPart> parts;
      for (size_t i = 0; i < layer_.items.size(); ++i) {
        const RingItem& item = layer_.items[i];
        const int other = item.index_of(peer);
        if (item.mode != RingMode::kPassKv || other < 0 || !Visits(i, other, item.index, s)) {
          continue;
        }
        for (const ShardPage& page : layer_.shards[i].seen_by[other]) {
          parts.push_back({layer_.page_data(page.page), ring_.config_.layer_page_bytes});
          ring_.link_.counters().bytes_pass_kv +=
              static_cast<int64_t>(ring_.config_.layer_page_bytes);
        }
      }
      ANNULUS_RETURN_IF_ERROR(
          round_.Add(peer, Tag(s, kPages), std::move(parts), PageBytes(peer, s), slot));
    }
    return absl::OkStatus();
  }

  // Takes what peers sent for ring step s and lists the attention work that it makes possible.
  absl::Status ReceiveForward(int s) {
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      if (peer == ring_.link_.rank()) continue;
      ANNULUS_RETURN_IF_ERROR(UseForward(peer, s));
    }
    for (size_t i = 0; i < layer_.items.size(); ++i) {
      const RingItem& item = layer_.items[i];
      if (item.own_rows() == 0 || !Visits(i, item.index, item.index, s)) continue;
      const size_t first = views_.size();
      AddOwnViews(layer_.shards[i].held_by[item.index]);
      AddOwnWork(i, item.index, first);
    }
    return absl::OkStatus();
  }

  // Of the pages of `peer` that own rows visit at ring step s.
  std::vector<size_t> PageBytes(int peer, int s) const {
    std::vector<size_t> bytes;
    for (size_t i = 0; i < layer_.items.size(); ++i) {
      const RingItem& item = layer_.items[i];
      const int other = item.index_of(peer);
      if (item.mode != RingMode::kPassKv || other < 0 || !Visits(i, item.index, other, s)) continue;
      bytes.insert(bytes.end(), layer_.shards[i].held_by[other].size(),
                   ring_.config_.layer_page_bytes);
    }
    return bytes;
  }

  absl::StatusOr<std::vector<RingPart>> ReceivePages(int peer, int s) {
    const std::vector<size_t> bytes = PageBytes(peer, s);
    if (bytes.empty()) return std::vector<RingPart>();
    ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
    return Receive(peer, s, kPages, bytes);
  }

  absl::Status UseForward(int peer, int s) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<RingPart> pages, ReceivePages(peer, s));
    size_t next = 0;
    for (size_t i = 0; i < layer_.items.size(); ++i) {
      const RingItem& item = layer_.items[i];
      const int other = item.index_of(peer);
      if (other < 0) continue;
      const size_t first = views_.size();
      if (item.mode == RingMode::kPassKv && Visits(i, item.index, other, s)) {
        for (const ShardPage& page : layer_.shards[i].held_by[other]) {
          views_.push_back({pages[next++].data, page.first_position, page.tokens});
        }
        AddOwnWork(i, other, first);
      } else if (item.mode == RingMode::kPassQ && Visits(i, other, item.index, s)) {
        ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
        const RingPart* const parts = &queries_[peer].parts[queries_[peer].first[i]];
        const int64_t rows = static_cast<int64_t>(item.positions[other].size());
        const ConstMatrixView query{Floats(parts[0]), rows, QueryColumns(), QueryColumns()};
        if (item.carries_row(item.index)) {
          ANNULUS_RETURN_IF_ERROR(AppendRow(i, parts[1], parts[2]));
        }
        AddOwnViews(layer_.shards[i].seen_by[other]);
        int n = 0;
        for (const Subtree& subtree : layer_.shards[i].subtrees[item.index]) {
          work_.push_back({i, other, query, first, views_.size() - first,
                           &layer_.shards[i].seen_lists[other], subtree,
                           Rows(layer_.served, item.served_offset(other, n++), rows)});
        }
      }
    }
    return absl::OkStatus();
  }

  // Writes a sampled row that another rank computed into its page here.
  absl::Status AppendRow(size_t i, const RingPart& key, const RingPart& value) {
    const RingItem& item = layer_.items[i];
    const ShardPage& page = layer_.shards[i].seen_by[item.home_index()].back();
    std::byte* data = layer_.page_data(page.page);
    const int32_t slot = item.begin - page.first_position;
    KvAppendParams params;
    params.shape = ring_.config_.shape;
    params.k = {Floats(key), 1, KeyColumns(), KeyColumns()};
    params.v = {Floats(value), 1, ValueColumns(), ValueColumns()};
    params.pages = std::span<std::byte* const>(&data, 1);
    params.slots = std::span<const int32_t>(&slot, 1);
    return ring_.ops_.kv_append(ring_.stream_, params);
  }

  void AddOwnViews(const std::vector<ShardPage>& pages) {
    for (const ShardPage& page : pages) {
      views_.push_back({layer_.page_data(page.page), page.first_position, page.tokens});
    }
  }

  // Own rows against views_[first..], which `holder` holds.
  void AddOwnWork(size_t i, int holder, size_t first) {
    const RingItem& item = layer_.items[i];
    for (const Subtree& subtree : layer_.shards[i].subtrees[holder]) {
      work_.push_back({i, item.index, OwnRows(layer_.query, item), first, views_.size() - first,
                       &layer_.shards[i].held_lists[holder], subtree, AttentionState()});
    }
  }

  // Of an item's own rows: the result is slot 0.
  AttentionState OwnState(const RingItem& item, int slot = 0) const {
    ANNULUS_CHECK(slot < item.kept_slots) << "a state without memory";
    if (slot == 0) return Rows(layer_.state, item.first_row, item.own_rows());
    return Rows(layer_.kept, item.kept_offset + (slot - 1) * item.own_rows(), item.own_rows());
  }

  absl::Status Merge(const AttentionState& into, const AttentionState& from) {
    return ring_.timer_.Time(ring_.stream_, [&] {
      return ring_.ops_.merge_state(ring_.stream_, {into, from});
    });
  }

  // Merges the states of item `i` that are neighbours in the tree by now.
  absl::Status Settle(size_t i) {
    absl::Status status;
    mergers_[i].Settle([&](int into, int from) {
      const RingItem& item = layer_.items[i];
      status.Update(Merge(OwnState(item, into), OwnState(item, from)));
    });
    return status;
  }

  absl::Status Attend() {
    if (work_.empty()) return absl::OkStatus();
    std::vector<AttentionItem> items;
    items.reserve(work_.size());
    for (const Work& work : work_) {
      AttentionItem item;
      item.query = work.query;
      item.positions = layer_.items[work.item].positions[work.runner];
      item.pages = std::span(views_).subspan(work.first_view, work.view_count);
      item.blocks = work.lists->view();
      if (layer_.window == 0) item.branches = layer_.items[work.item].branches;
      if (work.subtree.leaves < ring_.config_.shards) {
        item.first_leaf = work.subtree.first;
        item.leaves = work.subtree.leaves;
      }
      item.state = work.state;
      if (work.runner == layer_.items[work.item].index) {
        const StateMerger::Place place = mergers_[work.item].Take(work.subtree);
        item.state = OwnState(layer_.items[work.item], place.slot);
        item.merges = place.merges;
      }
      items.push_back(item);
    }
    AttentionParams params;
    params.shape = ring_.config_.shape;
    params.heads = ring_.config_.heads;
    params.scale = ring_.config_.scale;
    params.soft_cap = ring_.config_.soft_cap;
    params.window = layer_.window;
    params.shards = ring_.config_.shards;
    params.items = items;
    ANNULUS_RETURN_IF_ERROR(ring_.timer_.Time(
        ring_.stream_, [&] { return ring_.ops_.attention(ring_.stream_, params); }));
    for (const Work& work : work_) {
      if (work.runner == layer_.items[work.item].index) {
        ANNULUS_RETURN_IF_ERROR(Settle(work.item));
      }
    }
    ANNULUS_RETURN_IF_ERROR(ring_.timer_.Follow());
    ring_.link_.Beat();
    return absl::OkStatus();
  }

  absl::Status AddStates(int s) {
    std::span<std::byte> slot = layer_.slots.states[s % 2];
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      if (peer == ring_.link_.rank()) continue;
      std::vector<RingPart> parts;
      for (const Work& work : work_) {
        const RingItem& item = layer_.items[work.item];
        if (work.runner == item.index || item.ring[work.runner] != peer) continue;
        parts.push_back({Bytes(work.state.o), OutputBytes(work.state)});
        parts.push_back({Bytes(work.state.lse), LseBytes(work.state)});
        ring_.link_.counters().bytes_pass_q +=
            static_cast<int64_t>(OutputBytes(work.state) + LseBytes(work.state));
      }
      ANNULUS_RETURN_IF_ERROR(round_.Add(peer, Tag(s, kState), std::move(parts),
                                         StateBytes(peer, ItemsAt(peer, s)), slot));
    }
    return absl::OkStatus();
  }

  // Items whose own rows `peer` has attended at ring step s.
  std::vector<size_t> ItemsAt(int peer, int s) const {
    std::vector<size_t> items;
    for (size_t i = 0; i < layer_.items.size(); ++i) {
      const RingItem& item = layer_.items[i];
      const int other = item.index_of(peer);
      if (item.mode != RingMode::kPassQ || other < 0) continue;
      if (Visits(i, item.index, other, s)) items.push_back(i);
    }
    return items;
  }

  // The subtrees that `peer` attends for own rows of item `i`.
  const std::vector<Subtree>& SubtreesAt(int peer, size_t i) const {
    return layer_.shards[i].subtrees[layer_.items[i].index_of(peer)];
  }

  std::vector<size_t> StateBytes(int peer, const std::vector<size_t>& items) const {
    std::vector<size_t> bytes;
    for (const size_t i : items) {
      const AttentionState own = OwnState(layer_.items[i]);
      for (size_t n = 0; n < SubtreesAt(peer, i).size(); ++n) {
        bytes.push_back(OutputBytes(own));
        bytes.push_back(LseBytes(own));
      }
    }
    return bytes;
  }

  absl::Status ReceiveStates(int s) {
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      if (peer == ring_.link_.rank()) continue;
      const std::vector<size_t> waiting = ItemsAt(peer, s);
      if (waiting.empty()) continue;
      ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
      ANNULUS_ASSIGN_OR_RETURN(const std::vector<RingPart> parts,
                               Receive(peer, s, kState, StateBytes(peer, waiting)));
      const RingPart* next = parts.data();
      for (const size_t i : waiting) {
        for (const Subtree& subtree : SubtreesAt(peer, i)) {
          ANNULUS_RETURN_IF_ERROR(Absorb(i, subtree, next[0], next[1]));
          next += 2;
        }
      }
    }
    return absl::OkStatus();
  }

  // Takes the state of a subtree that came back: merges it with its neighbour, or keeps a copy.
  absl::Status Absorb(size_t i, const Subtree& subtree, const RingPart& o, const RingPart& lse) {
    const StateMerger::Place place = mergers_[i].Take(subtree);
    const AttentionState into = OwnState(layer_.items[i], place.slot);
    if (place.merges) {
      AttentionState from = into;
      // merge_state only reads `from`; its fields are not const so that one type serves both sides.
      from.o = const_cast<float*>(Floats(o));
      from.lse = const_cast<float*>(Floats(lse));
      ANNULUS_RETURN_IF_ERROR(Merge(into, from));
    } else {
      ANNULUS_RETURN_IF_ERROR(ring_.backend_.Copy(ring_.stream_, into.o, o.data, o.bytes));
      ANNULUS_RETURN_IF_ERROR(ring_.backend_.Copy(ring_.stream_, into.lse, lse.data, lse.bytes));
    }
    return Settle(i);
  }

  RingAttention& ring_;
  const RingLayer& layer_;
  std::vector<StateMerger> mergers_;  // [item] of own rows
  std::vector<Queries> queries_;      // [rank]
  RingRound round_;                   // the one that is being made
  std::vector<Work> work_;
  std::vector<KvPageView> views_;
};

absl::Status RingAttention::Run(const RingLayer& layer) { return LayerRun(*this, layer).Run(); }

}  // namespace annulus

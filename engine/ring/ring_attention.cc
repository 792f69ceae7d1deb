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

int64_t RingAttention::ServedRows(std::span<RingItem> items) {
  int64_t rows = 0;
  for (RingItem& item : items) {
    item.state_offset = rows;
    if (item.mode != RingMode::kPassQ) continue;
    for (int i = 0; i < item.degree(); ++i) {
      if (i != item.index) rows += static_cast<int64_t>(item.positions[i].size());
    }
  }
  return rows;
}

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
      : ring_(ring),
        layer_(layer),
        started_(layer.items.size(), false),
        queries_(ring.link_.size()),
        round_(ring.link_) {}

  absl::Status Run() {
    int steps = 0;
    for (const RingItem& item : layer_.items) steps = std::max(steps, item.degree());
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
  // One attention call's item: rows (own or a peer's) against pages (own or a peer's).
  struct Work {
    size_t item = 0;
    int runner = 0;
    ConstMatrixView query;
    size_t first_view = 0;  // in views_
    size_t view_count = 0;
    const PageLists* lists = nullptr;
    AttentionState state;
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
    return s < item.degree() && item.visits(runner, s) == holder && Sees(i, runner, holder);
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
        work_.push_back({i, other, query, first, views_.size() - first,
                         &layer_.shards[i].seen_lists[other],
                         Rows(layer_.served, item.served_offset(other), rows)});
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
    work_.push_back({i, item.index, OwnRows(layer_.query, item), first, views_.size() - first,
                     &layer_.shards[i].held_lists[holder], OwnState(item)});
  }

  // Notes that the result of item `i` has a partial state; true where it had one already.
  bool Begin(size_t i) {
    const bool had = started_[i];
    started_[i] = true;
    return had;
  }

  AttentionState OwnState(const RingItem& item) const {
    return Rows(layer_.state, item.first_row, item.own_rows());
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
      item.state = work.state;
      if (work.runner == layer_.items[work.item].index) {
        item.merges = Begin(work.item);
      }
      items.push_back(item);
    }
    AttentionParams params;
    params.shape = ring_.config_.shape;
    params.heads = ring_.config_.heads;
    params.scale = ring_.config_.scale;
    params.soft_cap = ring_.config_.soft_cap;
    params.window = layer_.window;
    params.items = items;
    ANNULUS_RETURN_IF_ERROR(ring_.timer_.Time(
        ring_.stream_, [&] { return ring_.ops_.attention(ring_.stream_, params); }));
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
      ANNULUS_RETURN_IF_ERROR(
          round_.Add(peer, Tag(s, kState), std::move(parts), StateBytes(ItemsAt(peer, s)), slot));
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

  std::vector<size_t> StateBytes(const std::vector<size_t>& items) const {
    std::vector<size_t> bytes;
    for (const size_t i : items) {
      const AttentionState own = OwnState(layer_.items[i]);
      bytes.push_back(OutputBytes(own));
      bytes.push_back(LseBytes(own));
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
                               Receive(peer, s, kState, StateBytes(waiting)));
      for (size_t n = 0; n < waiting.size(); ++n) {
        ANNULUS_RETURN_IF_ERROR(Absorb(waiting[n], parts[2 * n], parts[2 * n + 1]));
      }
    }
    return absl::OkStatus();
  }

  // Takes a state that came back: as the result when it is the row's first, else by a merge.
  absl::Status Absorb(size_t i, const RingPart& o, const RingPart& lse) {
    const AttentionState own = OwnState(layer_.items[i]);
    if (Begin(i)) {
      MergeStateParams params;
      params.into = params.from = own;
      // merge_state only reads `from`; its fields are not const so that one type serves both sides.
      params.from.o = const_cast<float*>(Floats(o));
      params.from.lse = const_cast<float*>(Floats(lse));
      return ring_.timer_.Time(ring_.stream_,
                               [&] { return ring_.ops_.merge_state(ring_.stream_, params); });
    }
    ANNULUS_RETURN_IF_ERROR(ring_.backend_.Copy(ring_.stream_, own.o, o.data, o.bytes));
    return ring_.backend_.Copy(ring_.stream_, own.lse, lse.data, lse.bytes);
  }

  RingAttention& ring_;
  const RingLayer& layer_;
  std::vector<bool> started_;     // [item] the result holds at least one partial state
  std::vector<Queries> queries_;  // [rank]
  RingRound round_;               // the one that is being made
  std::vector<Work> work_;
  std::vector<KvPageView> views_;
};

absl::Status RingAttention::Run(const RingLayer& layer) { return LayerRun(*this, layer).Run(); }

}  // namespace annulus

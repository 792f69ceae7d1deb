#include "engine/ring/ring_attention.h"

#include <array>
#include <utility>

#include "engine/ring/ring_planner.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

const float* Floats(const RingPart& part) { return reinterpret_cast<const float*>(part.data); }

}  // namespace

RingAttention::RingAttention(RingChannel& channel, Backend& backend, const OpTable& ops,
                             Stream& stream, const RingAttentionConfig& config)
    : link_(channel, stream, config.timeout, config.heartbeat),
      backend_(backend),
      ops_(ops),
      stream_(stream),
      config_(config),
      timer_(backend),
      round_(link_) {}

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

// One layer of a plan.
class RingAttention::LayerRun {
 public:
  LayerRun(RingAttention& ring, const RingLayer& layer, RingPlan& plan)
      : ring_(ring), layer_(layer), plan_(plan), round_(ring.round_) {
    round_.Clear();
  }

  absl::Status Run() {
    const int steps = static_cast<int>(plan_.steps_.size());
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
      ANNULUS_RETURN_IF_ERROR(Attend(plan_.steps_[s]));
      ANNULUS_RETURN_IF_ERROR(AddStates(s));
      ANNULUS_RETURN_IF_ERROR(round_.Post());
      if (s + 1 < steps) ANNULUS_RETURN_IF_ERROR(ReceiveForward(s + 1));
      ANNULUS_RETURN_IF_ERROR(ReceiveStates(s));
    }
    return absl::OkStatus();
  }

 private:
  using PeerStep = RingPlan::PeerStep;

  enum Kind : uint64_t { kPages = 0, kState = 1, kQuery = 2 };
  uint64_t Tag(int s, Kind kind) const {
    return layer_.tag | (static_cast<uint64_t>(s) << 2) | kind;
  }

  // Adds a message to the round. `offset`: bytes from its parts to those of this layer.
  absl::Status Add(int peer, uint64_t tag, const RingPlan::Message& message,
                   std::span<std::byte>& slot, size_t offset = 0) {
    return round_.Add(peer, tag, message.parts.After(offset), message.expected, slot);
  }

  absl::StatusOr<RingParts> Receive(int peer, int s, Kind kind, const RingPlan::Message& message) {
    return ring_.link_.Receive(peer, Tag(s, kind), message.expected);
  }

  // Sends own queries to all ranks that hold keys they attend. A peer attends them at the ring step
  // of their visit, or at once if it has nothing to do before; so the holders of a few rows' keys
  // work in parallel.
  absl::Status AddQueries() {
    std::span<std::byte> slot = layer_.slots.queries;
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      RingPlan::Queries& queries = plan_.queries_[peer];
      queries.received = false;
      if (queries.message.empty()) continue;
      ring_.link_.counters().bytes_pass_q += queries.message.bytes;
      ANNULUS_RETURN_IF_ERROR(Add(peer, Tag(0, kQuery), queries.message, slot));
    }
    return absl::OkStatus();
  }

  // Takes the queries of `peer`, which it sends before all else: called ahead of any Receive.
  absl::Status TakeQueries(int peer) {
    RingPlan::Queries& queries = plan_.queries_[peer];
    if (std::exchange(queries.received, true) || queries.message.expected.empty()) {
      return absl::OkStatus();
    }
    ANNULUS_ASSIGN_OR_RETURN(queries.parts, Receive(peer, 0, kQuery, queries.message));
    return absl::OkStatus();
  }

  // The pages that peers' rows visit here at ring step s.
  absl::Status AddPages(int s) {
    std::span<std::byte> slot = layer_.slots.pages[s % 2];
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      const RingPlan::Message& pages = plan_.steps_[s].peers[peer].pages;
      if (pages.empty()) continue;
      ring_.link_.counters().bytes_pass_kv += pages.bytes;
      ANNULUS_RETURN_IF_ERROR(Add(peer, Tag(s, kPages), pages, slot, layer_.page_offset));
    }
    return absl::OkStatus();
  }

  // Takes what peers sent for ring step s, and tells the step's attention where it lies.
  absl::Status ReceiveForward(int s) {
    RingPlan::Step& step = plan_.steps_[s];
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      ANNULUS_RETURN_IF_ERROR(ReceivePages(peer, s, step.peers[peer]));
      for (const RingPlan::Served& served : step.peers[peer].served) {
        ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
        ANNULUS_RETURN_IF_ERROR(Serve(served, plan_.queries_[peer].parts, step));
      }
    }
    for (size_t i = 0; i < step.items.size(); ++i) {
      step.items[i].page_offset = step.own_pages[i] != 0 ? layer_.page_offset : PeersOffset();
    }
    return absl::OkStatus();
  }

  // Bytes from the views of received pages to their parts of this layer. Copies lie in the same
  // slots in every layer. Where addresses are passed, a page of a peer lies in each layer as far
  // from the first layer's as an own page does, so its view is the same in all of them, and ops can
  // tell that they attend the same pages.
  size_t PeersOffset() const { return ring_.link_.copies() ? 0 : layer_.page_offset; }

  absl::Status ReceivePages(int peer, int s, PeerStep& with) {
    if (with.pages.expected.empty()) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
    ANNULUS_ASSIGN_OR_RETURN(const RingParts pages, Receive(peer, s, kPages, with.pages));
    for (size_t i = 0; i < pages.size(); ++i) {
      with.views[i].data = pages[i].data - PeersOffset();
    }
    return absl::OkStatus();
  }

  // `parts`: from served.part on the queries, and for sampled rows their keys and values.
  absl::Status Serve(const RingPlan::Served& served, const RingParts& parts, RingPlan::Step& step) {
    for (size_t i = 0; i < served.items; ++i) {
      step.items[served.first_item + i].query.data = Floats(parts[served.part]);
    }
    if (served.page == nullptr) return absl::OkStatus();
    // Another rank computed the rows that are written into the page here.
    std::array<std::byte*, kMostSampledRows> pages;
    std::array<int32_t, kMostSampledRows> slots;
    const auto rows = static_cast<size_t>(served.rows);
    ANNULUS_CHECK(rows <= pages.size()) << rows << " sampled rows of an item";
    for (size_t row = 0; row < rows; ++row) {
      pages[row] = served.page + layer_.page_offset;
      slots[row] = served.slot + static_cast<int32_t>(row);
    }
    const KvPageShape& shape = ShapeOf(layer_, ring_.config_).shape;
    const int64_t key_columns = int64_t{shape.kv_heads} * shape.k_dim;
    const int64_t value_columns = int64_t{shape.kv_heads} * shape.v_dim;
    KvAppendParams params;
    params.shape = shape;
    params.k = {Floats(parts[served.part + 1]), served.rows, key_columns, key_columns};
    params.v = {Floats(parts[served.part + 2]), served.rows, value_columns, value_columns};
    params.pages = std::span<std::byte* const>(pages).first(rows);
    params.slots = std::span<const int32_t>(slots).first(rows);
    return ring_.ops_.kv_append(ring_.stream_, params);
  }

  absl::Status Merge(const AttentionState& into, const AttentionState& from) {
    return ring_.timer_.Time(ring_.stream_, [&] {
      return ring_.ops_.merge_state(ring_.stream_, {into, from});
    });
  }

  absl::Status MergeAll(std::span<const RingPlan::Merge> merges) {
    for (const RingPlan::Merge& merge : merges) {
      ANNULUS_RETURN_IF_ERROR(Merge(merge.first, merge.second));
    }
    return absl::OkStatus();
  }

  absl::Status Attend(RingPlan::Step& step) {
    if (step.items.empty()) return absl::OkStatus();
    AttentionParams params;
    const RingShape& shape = ShapeOf(layer_, ring_.config_);
    params.shape = shape.shape;
    params.heads = shape.heads;
    params.scale = shape.scale;
    params.soft_cap = ring_.config_.soft_cap;
    params.window = layer_.window;
    params.shards = ring_.config_.shards;
    params.items = step.items;
    params.layout = &step.layout;
    ANNULUS_RETURN_IF_ERROR(ring_.timer_.Time(
        ring_.stream_, [&] { return ring_.ops_.attention(ring_.stream_, params); }));
    ANNULUS_RETURN_IF_ERROR(MergeAll(step.merges));
    ANNULUS_RETURN_IF_ERROR(ring_.timer_.Follow());
    ring_.link_.Beat();
    return absl::OkStatus();
  }

  absl::Status AddStates(int s) {
    std::span<std::byte> slot = layer_.slots.states[s % 2];
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      const RingPlan::Message& states = plan_.steps_[s].peers[peer].states;
      if (states.empty()) continue;
      ring_.link_.counters().bytes_pass_q += states.bytes;
      ANNULUS_RETURN_IF_ERROR(Add(peer, Tag(s, kState), states, slot));
    }
    return absl::OkStatus();
  }

  absl::Status ReceiveStates(int s) {
    for (int peer = 0; peer < ring_.link_.size(); ++peer) {
      const PeerStep& with = plan_.steps_[s].peers[peer];
      if (with.states.expected.empty()) continue;
      ANNULUS_RETURN_IF_ERROR(TakeQueries(peer));
      ANNULUS_ASSIGN_OR_RETURN(const RingParts parts, Receive(peer, s, kState, with.states));
      size_t next = 0;
      for (const RingPlan::Returned& returned : with.returned) {
        ANNULUS_RETURN_IF_ERROR(Absorb(returned, parts[next], parts[next + 1]));
        next += 2;
      }
    }
    return absl::OkStatus();
  }

  // Takes the state of a subtree that came back: merges it with its neighbour, or keeps a copy.
  absl::Status Absorb(const RingPlan::Returned& returned, const RingPart& o, const RingPart& lse) {
    const AttentionState& into = returned.into;
    if (returned.merged) {
      AttentionState from = into;
      // merge_state only reads `from`; its fields are not const so that one type serves both sides.
      from.o = const_cast<float*>(Floats(o));
      from.lse = const_cast<float*>(Floats(lse));
      ANNULUS_RETURN_IF_ERROR(Merge(into, from));
    } else {
      ANNULUS_RETURN_IF_ERROR(ring_.backend_.Copy(ring_.stream_, into.o, o.data, o.bytes));
      ANNULUS_RETURN_IF_ERROR(ring_.backend_.Copy(ring_.stream_, into.lse, lse.data, lse.bytes));
    }
    return MergeAll(returned.merges);
  }

  RingAttention& ring_;
  const RingLayer& layer_;
  RingPlan& plan_;
  RingRound& round_;
};

void RingAttention::LayOut(const RingLayer& layer, RingPlan& plan) const {
  RingPlanner(config_, link_.rank(), link_.size(), layer).LayOut(plan);
}

absl::Status RingAttention::Run(const RingLayer& layer, RingPlan& plan) {
  if (!plan.laid_out()) LayOut(layer, plan);
  return LayerRun(*this, layer, plan).Run();
}

absl::Status RingAttention::Run(const RingLayer& layer) {
  RingPlan plan;
  return Run(layer, plan);
}

}  // namespace annulus

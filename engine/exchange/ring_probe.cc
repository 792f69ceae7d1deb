#include "engine/exchange/ring_probe.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "engine/memory/align.h"
#include "engine/scheduler/placement.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Small values of both signs (a linear congruential generator): attention then weighs keys about
// equally.
std::vector<float> SmallValues(int64_t count) {
  std::vector<float> values(count);
  uint32_t bits = 1;
  for (float& value : values) {
    bits = bits * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-31f;
  }
  return values;
}

float* Floats(DeviceBuffer& buffer) { return reinterpret_cast<float*>(buffer.data()); }

}  // namespace

RingProbe::RingProbe(const RingProbeOptions& options, const OpTable& ops, Backend& backend)
    : options_(options),
      ops_(ops),
      backend_(backend),
      page_bytes_(ops.kv_page_bytes(options.attention.page)) {}

Backend& RingProbe::DeviceOf(int rank) const {
  return backend_.OnDevice(rank % backend_.capabilities().devices);
}

absl::StatusOr<std::unique_ptr<RingProbe>> RingProbe::Create(const RingProbeOptions& options,
                                                             const OpTable& ops, Backend& backend) {
  constexpr std::chrono::milliseconds kOpening{60'000};
  std::unique_ptr<RingProbe> probe(new RingProbe(options, ops, backend));
  ANNULUS_ASSIGN_OR_RETURN(probe->ring_,
                           OpenRing(options.transport, backend, options.ranks, kOpening));
  const int32_t page_tokens = options.attention.page.page_tokens;
  probe->ranks_.resize(options.ranks);
  for (int32_t first = 0; first < options.tokens; first += page_tokens) {
    const int32_t rank = PlaceOnRing(first, page_tokens, options.ranks, probe->shards());
    probe->table_.push_back({rank, probe->ranks_[rank].page_count++, first});
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    ANNULUS_RETURN_IF_ERROR(probe->AddRank(rank));
  }
  return probe;
}

absl::Status RingProbe::AddRank(int index) {
  Rank& rank = ranks_[index];
  const KvPageShape& shape = options_.attention.page;
  // One rank may own all rows of a short chunk.
  const int64_t rows = std::max<int64_t>(options_.rows, shape.page_tokens);
  const int64_t operands = rows * options_.attention.heads * std::max(shape.k_dim, shape.v_dim);
  const int64_t state = rows * options_.attention.heads * (shape.v_dim + 1);
  const StateCounts states = StatesOfRing(options_.ranks, ShardsOf(ops_, options_.ranks));
  Backend& device = DeviceOf(index);
  ANNULUS_ASSIGN_OR_RETURN(rank.stream,
                           device.CreateStream(std::max(1, options_.threads / options_.ranks)));
  ANNULUS_ASSIGN_OR_RETURN(rank.pages, device.Allocate(rank.page_count * page_bytes_));
  ANNULUS_ASSIGN_OR_RETURN(rank.operands, device.Allocate(operands * sizeof(float)));
  ANNULUS_ASSIGN_OR_RETURN(rank.state, device.Allocate(state * sizeof(float)));
  ANNULUS_ASSIGN_OR_RETURN(rank.served, device.Allocate(states.states * state * sizeof(float)));
  ANNULUS_ASSIGN_OR_RETURN(rank.kept, device.Allocate(states.kept_slots * state * sizeof(float)));
  if (copies()) ANNULUS_RETURN_IF_ERROR(TakeSlots(device, index));
  const std::vector<float> values = SmallValues(operands);
  ANNULUS_RETURN_IF_ERROR(device.Copy(*rank.stream, rank.operands.data(), values.data(),
                                      values.size() * sizeof(float)));
  return FillPages(rank);
}

RingSlotPlan RingProbe::SlotPlan() const {
  RingSlotPlan plan;
  plan.ranks = options_.ranks;
  plan.rows = std::max(options_.rows, options_.attention.page.page_tokens);
  plan.states = StatesOfRing(options_.ranks, ShardsOf(ops_, options_.ranks)).states;
  for (const Rank& rank : ranks_) plan.pages = std::max<int64_t>(plan.pages, rank.page_count);
  plan.shapes = {{.shape = options_.attention.page,
                  .layer_page_bytes = page_bytes_,
                  .heads = options_.attention.heads}};
  return plan;
}

absl::Status RingProbe::TakeSlots(Backend& device, int index) {
  Rank& rank = ranks_[index];
  constexpr size_t kSmallParts = size_t{64} << 10;  // a thousand parts, each at its place
  ANNULUS_ASSIGN_OR_RETURN(rank.slots, device.Allocate(RingSlots::BytesFor(SlotPlan())));
  ANNULUS_ASSIGN_OR_RETURN(rank.arrivals, device.Allocate(std::max(kSmallParts, transfer_bytes())));
  RingChannel& channel = ring_->channel(index);
  ANNULUS_ASSIGN_OR_RETURN(rank.send_area, device.Allocate(channel.send_bytes()));
  channel.UseSendArea({rank.send_area.data(), rank.send_area.size()});
  return absl::OkStatus();
}

absl::Status RingProbe::FillPages(Rank& rank) {
  const KvPageShape& shape = options_.attention.page;
  const int64_t k_columns = int64_t{shape.kv_heads} * shape.k_dim;
  const int64_t v_columns = int64_t{shape.kv_heads} * shape.v_dim;
  std::vector<int32_t> slots(shape.page_tokens);
  for (int32_t slot = 0; slot < shape.page_tokens; ++slot) slots[slot] = slot;
  for (int32_t page = 0; page < rank.page_count; ++page) {
    const std::vector<std::byte*> pages(shape.page_tokens, rank.pages.data() + page * page_bytes_);
    KvAppendParams params;
    params.shape = shape;
    params.k = {Floats(rank.operands), shape.page_tokens, k_columns, k_columns};
    params.v = {Floats(rank.operands), shape.page_tokens, v_columns, v_columns};
    params.pages = pages;
    params.slots = slots;
    ANNULUS_RETURN_IF_ERROR(ops_.kv_append(*rank.stream, params));
  }
  return rank.stream->Synchronize();
}

AttentionState RingProbe::State(DeviceBuffer& buffer, int64_t rows) const {
  float* const o = Floats(buffer);
  const int64_t rows_held = std::max<int64_t>(options_.rows, options_.attention.page.page_tokens);
  const int64_t capacity =
      std::max(rows, rows_held) * options_.attention.heads * int64_t{options_.attention.page.v_dim};
  return {o, o + capacity, rows, options_.attention.heads, options_.attention.page.v_dim};
}

RingItem RingProbe::Item(int rank, RingMode mode, int32_t rows, int32_t cached) const {
  RingItem item;
  for (int32_t r = 0; r < options_.ranks; ++r) item.ring.push_back(r);
  item.index = rank;
  item.mode = mode;
  item.begin = cached;
  item.end = cached + rows;
  item.positions.resize(options_.ranks);
  for (int32_t row = item.begin; row < item.end; ++row) {
    item.positions[PlaceOnRing(row, options_.attention.page.page_tokens, options_.ranks, shards())]
        .push_back(row);
  }
  return item;
}

absl::Status RingProbe::RunLayer(int index, std::span<const RingItem> items,
                                 std::span<const ItemShards> shards, const StateRows& states) {
  Rank& rank = ranks_[index];
  const KvPageShape& shape = options_.attention.page;
  const int64_t own = items[0].own_rows();
  RingAttentionConfig config;
  config.shape = shape;
  config.layer_page_bytes = page_bytes_;
  config.heads = options_.attention.heads;
  config.scale = 1.0f / std::sqrt(static_cast<float>(shape.k_dim));
  config.shards = ShardsOf(ops_, options_.ranks);
  config.heartbeat = &heartbeat_;
  RingLayer layer;
  layer.tag = tag_ << 16;
  layer.items = items;
  layer.shards = shards;
  const int64_t columns = int64_t{options_.attention.heads} * shape.k_dim;
  layer.query = {Floats(rank.operands), own, columns, columns};
  layer.page_data = [&](int32_t page) { return rank.pages.data() + page * page_bytes_; };
  layer.state = State(rank.state, own);
  layer.served = State(rank.served, states.served);
  layer.kept = State(rank.kept, states.kept);
  if (copies()) layer.slots = RingSlots::Cut(rank.slots.data(), SlotPlan());
  RingAttention attention(ring_->channel(index), DeviceOf(index), ops_, *rank.stream, config);
  ANNULUS_RETURN_IF_ERROR(attention.Run(layer));
  return rank.stream->Synchronize();
}

absl::Status RingProbe::SendAround(int index, const std::vector<size_t>& parts, int rounds) {
  Rank& rank = ranks_[index];
  RingLink link(ring_->channel(index), *rank.stream, std::chrono::seconds(30), &heartbeat_);
  const int next = (index + 1) % options_.ranks;
  const int previous = (index + options_.ranks - 1) % options_.ranks;
  // The layers of a step have their lists ready.
  std::vector<RingPart> list;
  for (const size_t bytes : parts) list.push_back({rank.pages.data(), bytes});
  RingMessage message{next, 0, std::move(list)};
  RingExpectation expected{previous, 0, parts, copies() ? rank.arrivals.data() : nullptr};
  for (int round = 0; round < rounds; ++round) {
    message.tag = expected.tag = static_cast<uint64_t>(round);
    ANNULUS_RETURN_IF_ERROR(link.Post({&message, 1}, {&expected, 1}));
    ANNULUS_RETURN_IF_ERROR(link.Receive(previous, round, parts).status());
    ANNULUS_RETURN_IF_ERROR(rank.stream->Synchronize());
  }
  return link.CountStreamWaits();
}

absl::StatusOr<double> RingProbe::Together(const std::function<absl::Status(int rank)>& work) {
  std::vector<absl::Status> statuses(options_.ranks);
  std::vector<double> seconds(options_.ranks, 0);
  std::barrier<> start(options_.ranks);
  std::barrier<> end(options_.ranks);  // peers may read a rank's states until all are done
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      start.arrive_and_wait();
      const SteadyTime began = std::chrono::steady_clock::now();
      statuses[rank] = work(rank);
      if (!statuses[rank].ok()) {
        ring_->channel(rank).Abort(statuses[rank]);
        ranks_[rank].stream->Synchronize().IgnoreError();  // the first status says why
      }
      end.arrive_and_wait();
      seconds[rank] =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (status.ok()) continue;
    ring_->Reset().IgnoreError();  // the ring is of no use then, and `status` says why
    return status;
  }
  return *std::max_element(seconds.begin(), seconds.end());
}

absl::StatusOr<double> RingProbe::Layer(RingMode mode, int32_t rows, int32_t cached) {
  ANNULUS_CHECK(rows <= options_.rows && cached + rows <= options_.tokens)
      << "rows " << rows << " after " << cached;
  ++tag_;
  std::vector<std::vector<RingItem>> items;
  std::vector<std::vector<ItemShards>> shards;
  std::vector<StateRows> states;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    items.push_back({Item(rank, mode, rows, cached)});
    shards.push_back(
        {BuildItemShards(items[rank][0], table_, 0, options_.attention.page.page_tokens,
                         ShardsOf(ops_, options_.ranks))});
    RingAttention::Note(shards[rank], items[rank]);
    states.push_back(RingAttention::Reserve(items[rank]));
  }
  return Together(
      [&](int rank) { return RunLayer(rank, items[rank], shards[rank], states[rank]); });
}

absl::StatusOr<double> RingProbe::Message(int parts, int rounds) {
  ANNULUS_CHECK(options_.ranks > 1) << "a ring of one sends nothing";
  // Whole words, like pages: a device may copy other sizes in another way.
  const std::vector<size_t> sizes(parts, kMemoryAlignment);
  ANNULUS_ASSIGN_OR_RETURN(const double seconds,
                           Together([&](int rank) { return SendAround(rank, sizes, rounds); }));
  return seconds / rounds;
}

absl::StatusOr<double> RingProbe::Transfer(size_t bytes, int rounds) {
  ANNULUS_CHECK(copies() && bytes <= transfer_bytes()) << bytes << " bytes";
  ANNULUS_ASSIGN_OR_RETURN(const double seconds,
                           Together([&](int rank) { return SendAround(rank, {bytes}, rounds); }));
  return seconds / rounds;
}

}  // namespace annulus

#ifndef ANNULUS_TESTS_ENGINE_RING_RING_WORLD_H_
#define ANNULUS_TESTS_ENGINE_RING_RING_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/ring/in_process_channel.h"
#include "engine/ring/ring_attention.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::testing {

struct RingShape {
  int heads = 4;
  int kv_heads = 2;
  int k_dim = 16;
  int v_dim = 16;
  int page_tokens = 16;
  int window = 0;
  DType dtype = DType::kF32;
  int shards = 8;

  int64_t query_columns() const { return int64_t{heads} * k_dim; }
  int64_t key_columns() const { return int64_t{kv_heads} * k_dim; }
  int64_t value_columns() const { return int64_t{kv_heads} * v_dim; }
  int64_t output_columns() const { return int64_t{heads} * v_dim; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(k_dim)); }
};

// A sequence of one layer, with the page that each of its positions lies in.
struct RingSequence {
  int32_t length = 0;
  std::vector<float> query, key, value;  // [length, columns] each
  std::vector<PageEntry> table;
  int32_t written = 0;  // positions whose keys and values are in their pages
};

// Rows [begin, end) of a sequence in one step.
struct RingRows {
  RingSequence* sequence = nullptr;
  std::vector<int32_t> ring;
  int32_t begin = 0;
  int32_t end = 0;
  RingMode mode = RingMode::kPassKv;
  bool sampled = false;
  int home = 0;  // ring index, for a sampled row
};

struct RingOutput {
  std::vector<float> o, lse;  // [end - begin, columns]
  std::vector<bool> here;     // [end - begin] whether a rank of this process computed the row
};

inline std::vector<int32_t> AllRanks(int ranks) {
  std::vector<int32_t> ring(ranks);
  for (int rank = 0; rank < ranks; ++rank) ring[rank] = rank;
  return ring;
}

// The ranks of a ring with their pages. Runs one layer of one step on a thread for each, as
// the runner would.
class RingWorld {
 public:
  // Without a `ring`, messages are addresses. `local`: the ranks that run here, if others run in
  // other processes, whose worlds are made and used alike; empty: all.
  RingWorld(int ranks, const RingShape& shape, const OpTable& ops, Backend& backend,
            std::unique_ptr<RingGroup> ring = nullptr, std::vector<int32_t> local = {})
      : ranks_(ranks),
        local_(local.empty() ? AllRanks(ranks) : std::move(local)),
        shape_(shape),
        ops_(ops),
        backend_(backend),
        ring_(ring != nullptr ? std::move(ring) : std::make_unique<InProcessRing>(backend, ranks)),
        page_shape_{shape.page_tokens, shape.kv_heads, shape.k_dim, shape.v_dim, shape.dtype},
        page_bytes_(ops.kv_page_bytes(page_shape_)),
        memory_(ranks) {}

  // Random operands; page u (positions [u * page_tokens, ..)) lies on rank place(u).
  RingSequence MakeSequence(int32_t length, const std::function<int32_t(int32_t)>& place,
                            std::mt19937& random) {
    RingSequence s;
    s.length = length;
    s.query = Random(random, length * shape_.query_columns());
    s.key = Random(random, length * shape_.key_columns());
    s.value = Random(random, length * shape_.value_columns());
    for (int32_t u = 0; u * shape_.page_tokens < length; ++u) AddPage(place(u), s);
    return s;
  }

  // Another sequence that begins with the first `tokens` (whole pages) of `from` and uses its
  // pages.
  RingSequence Continue(const RingSequence& from, int32_t tokens, int32_t length,
                        const std::function<int32_t(int32_t)>& place, std::mt19937& random) {
    RingSequence s = MakeSequence(0, place, random);
    s.length = length;
    s.query = Random(random, length * shape_.query_columns());
    s.key = Extend(from.key, tokens * shape_.key_columns(), length * shape_.key_columns(), random);
    s.value = Extend(from.value, tokens * shape_.value_columns(), length * shape_.value_columns(),
                     random);
    const int32_t shared = tokens / shape_.page_tokens;
    s.table.assign(from.table.begin(), from.table.begin() + shared);
    for (int32_t u = shared; u * shape_.page_tokens < length; ++u) AddPage(place(u), s);
    s.written = tokens;
    return s;
  }

  // Writes the keys and values of all rows, attends, and returns each item's result. Of a sequence
  // with two items the prefill comes first.
  std::vector<RingOutput> Run(const std::vector<RingRows>& rows) {
    std::vector<RingOutput> outputs(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      outputs[i].o.resize((rows[i].end - rows[i].begin) * shape_.output_columns());
      outputs[i].lse.resize((rows[i].end - rows[i].begin) * shape_.heads);
      outputs[i].here.resize(rows[i].end - rows[i].begin);
    }
    std::barrier<> finished(std::ssize(local_));
    std::vector<std::thread> threads;
    for (const int32_t rank : local_) {
      threads.emplace_back([&, rank] { RunRank(rank, rows, outputs, finished); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const RingRows& r : rows) r.sequence->written = std::max(r.sequence->written, r.end);
    return outputs;
  }

  // Keys and values of the written positions as the pages hold them: [written, columns].
  void ReadBack(const RingSequence& s, std::vector<float>& key, std::vector<float>& value) {
    key.resize(s.written * shape_.key_columns());
    value.resize(s.written * shape_.value_columns());
    auto stream = backend_.CreateStream(1).value();
    for (const PageEntry& entry : s.table) {
      const int tokens = std::min(shape_.page_tokens, s.written - entry.first_position);
      if (tokens <= 0) continue;
      KvReadParams params;
      params.shape = page_shape_;
      params.page = memory_[entry.rank][entry.page].data();
      params.tokens = tokens;
      params.k = {key.data() + entry.first_position * shape_.key_columns(), tokens,
                  shape_.key_columns(), shape_.key_columns()};
      params.v = {value.data() + entry.first_position * shape_.value_columns(), tokens,
                  shape_.value_columns(), shape_.value_columns()};
      ASSERT_TRUE(ops_.kv_read(*stream, params).ok());
    }
  }

 private:
  static std::vector<float> Random(std::mt19937& random, size_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    return values;
  }

  static std::vector<float> Extend(const std::vector<float>& from, size_t kept, size_t count,
                                   std::mt19937& random) {
    std::vector<float> values = Random(random, count);
    std::copy_n(from.begin(), kept, values.begin());
    return values;
  }

  void AddPage(int32_t rank, RingSequence& s) {
    memory_[rank].push_back(backend_.Allocate(page_bytes_).value());
    s.table.push_back({rank, static_cast<int32_t>(memory_[rank].size()) - 1,
                       static_cast<int32_t>(s.table.size()) * shape_.page_tokens});
  }

  RingItem MakeItem(const RingRows& rows, int index) const {
    RingItem item;
    item.ring = rows.ring;
    item.index = index;
    item.mode = rows.mode;
    item.sampled = rows.sampled;
    item.begin = rows.begin;
    item.end = rows.end;
    item.positions.resize(rows.ring.size());
    for (int32_t row = rows.begin; row < rows.end; ++row) {
      const PageEntry& entry = rows.sequence->table[row / shape_.page_tokens];
      const int owner = static_cast<int>(std::find(rows.ring.begin(), rows.ring.end(), entry.rank) -
                                         rows.ring.begin());
      if (rows.sampled) item.sampled_anchor = owner;
      item.positions[rows.sampled ? rows.home : owner].push_back(row);
    }
    return item;
  }

  // Rows that this rank computes and holds: all before `end` that are not yet written, except a
  // sampled one that arrives by message.
  void Append(Stream& stream, const RingRows& rows, int rank) {
    const RingSequence& s = *rows.sequence;
    for (int32_t row = s.written; row < rows.end; ++row) {
      const PageEntry& entry = s.table[row / shape_.page_tokens];
      if (entry.rank != rank) continue;
      if (rows.sampled && row >= rows.begin && rows.ring[rows.home] != rank) continue;
      std::byte* page = memory_[rank][entry.page].data();
      const int32_t slot = row - entry.first_position;
      KvAppendParams params;
      params.shape = page_shape_;
      params.k = {s.key.data() + row * shape_.key_columns(), 1, shape_.key_columns(),
                  shape_.key_columns()};
      params.v = {s.value.data() + row * shape_.value_columns(), 1, shape_.value_columns(),
                  shape_.value_columns()};
      params.pages = {&page, 1};
      params.slots = {&slot, 1};
      ASSERT_TRUE(ops_.kv_append(stream, params).ok());
    }
  }

  int shards() const { return ops_.row_invariant ? shape_.shards : 1; }

  static void CopyRows(const std::vector<float>& from, int64_t columns,
                       const std::vector<int32_t>& rows, std::vector<float>& to) {
    for (const int32_t row : rows) {
      to.insert(to.end(), from.begin() + row * columns, from.begin() + (row + 1) * columns);
    }
  }

  // What a rank's part of a step works on.
  struct RankStep {
    std::vector<RingItem> items;
    std::vector<ItemShards> shards;
    std::vector<size_t> which;  // [item] index into the step's rows
    std::vector<float> query, key, value;
    int64_t rows = 0;
  };

  RankStep Gather(int rank, const std::vector<RingRows>& rows) const {
    RankStep step;
    for (size_t i = 0; i < rows.size(); ++i) {
      const RingRows& r = rows[i];
      const auto me = std::find(r.ring.begin(), r.ring.end(), rank);
      if (me == r.ring.end()) continue;
      RingItem item = MakeItem(r, static_cast<int>(me - r.ring.begin()));
      item.first_row = step.rows;
      step.rows += item.own_rows();
      const std::vector<int32_t>& own = item.positions[item.index];
      CopyRows(r.sequence->query, shape_.query_columns(), own, step.query);
      CopyRows(r.sequence->key, shape_.key_columns(), own, step.key);
      CopyRows(r.sequence->value, shape_.value_columns(), own, step.value);
      step.shards.push_back(
          BuildItemShards(item, r.sequence->table, shape_.window, shape_.page_tokens, shards()));
      step.items.push_back(std::move(item));
      step.which.push_back(i);
    }
    return step;
  }

  RingAttentionConfig Config() {
    RingAttentionConfig config;
    config.shape = page_shape_;
    config.layer_page_bytes = page_bytes_;
    config.heads = shape_.heads;
    config.scale = shape_.scale();
    config.shards = shards();
    config.heartbeat = &heartbeat_;
    return config;
  }

  RingSlotPlan PlanSlots(const std::vector<RingRows>& rows) const {
    RingSlotPlan plan;
    plan.ranks = ranks_;
    for (const RingRows& r : rows) {
      plan.rows += r.end - r.begin;
      plan.pages += static_cast<int64_t>(r.sequence->table.size());
    }
    plan.states = shape_.shards;
    plan.shapes = {{.shape = page_shape_, .layer_page_bytes = page_bytes_, .heads = shape_.heads}};
    return plan;
  }

  void RunRank(int rank, const std::vector<RingRows>& rows, std::vector<RingOutput>& outputs,
               std::barrier<>& finished) {
    auto stream = backend_.CreateStream(1).value();
    RankStep step = Gather(rank, rows);
    for (const size_t i : step.which) Append(*stream, rows[i], rank);
    RingAttention::Note(step.shards, step.items);
    const StateRows states = RingAttention::Reserve(step.items);
    struct StateBuffer {
      std::vector<float> o, lse;
      StateBuffer(const RingShape& s, int64_t rows)
          : o(rows * s.output_columns()), lse(rows * s.heads) {}
      AttentionState view(const RingShape& s) {
        return {o.data(), lse.data(), static_cast<int64_t>(lse.size()) / s.heads, s.heads, s.v_dim};
      }
    };
    StateBuffer state(shape_, step.rows), others(shape_, states.served), kept(shape_, states.kept);
    RingLayer layer;
    layer.tag = 1 << 16;
    layer.window = shape_.window;
    layer.items = step.items;
    layer.shards = step.shards;
    layer.query = {step.query.data(), step.rows, shape_.query_columns(), shape_.query_columns()};
    layer.key = {step.key.data(), step.rows, shape_.key_columns(), shape_.key_columns()};
    layer.value = {step.value.data(), step.rows, shape_.value_columns(), shape_.value_columns()};
    layer.page_data = [&](int32_t page) { return memory_[rank][page].data(); };
    layer.state = state.view(shape_);
    layer.served = others.view(shape_);
    layer.kept = kept.view(shape_);
    DeviceBuffer slots;
    if (ring_->channel(rank).copies()) {
      const RingSlotPlan plan = PlanSlots(rows);
      slots = backend_.Allocate(RingSlots::BytesFor(plan)).value();
      layer.slots = RingSlots::Cut(slots.data(), plan);
    }
    RingAttention attention(ring_->channel(rank), backend_, ops_, *stream, Config());
    const absl::Status status = attention.Run(layer);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) ring_->channel(rank).Abort(status);
    const absl::Status flushed =
        ring_->channel(rank).Flush(Clock::Real().Now() + std::chrono::seconds(60));
    EXPECT_TRUE(flushed.ok() || !status.ok()) << flushed;
    for (size_t n = 0; n < step.items.size(); ++n) {
      int64_t row = step.items[n].first_row;
      for (const int32_t position : step.items[n].positions[step.items[n].index]) {
        const int64_t out = position - rows[step.which[n]].begin;
        RingOutput& output = outputs[step.which[n]];
        std::copy_n(&state.o[row * shape_.output_columns()], shape_.output_columns(),
                    &output.o[out * shape_.output_columns()]);
        std::copy_n(&state.lse[row * shape_.heads], shape_.heads, &output.lse[out * shape_.heads]);
        std::lock_guard lock(here_mutex_);  // its bits lie side by side
        output.here[out] = true;
        ++row;
      }
    }
    // Peers may still read this rank's states: buffers live until all are done, like a step's.
    finished.arrive_and_wait();
  }

  const int ranks_;
  const std::vector<int32_t> local_;
  std::mutex here_mutex_;
  const RingShape shape_;
  const OpTable& ops_;
  Backend& backend_;
  const std::unique_ptr<RingGroup> ring_;
  Heartbeat heartbeat_;
  const KvPageShape page_shape_;
  const size_t page_bytes_;
  std::vector<std::vector<DeviceBuffer>> memory_;  // [rank][page]
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RING_RING_WORLD_H_

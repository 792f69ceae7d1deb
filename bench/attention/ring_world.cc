#include "bench/attention/ring_world.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Uniform with variance 1: quick to draw, and of the size that a norm gives.
std::vector<float> RandomValues(std::mt19937& random, int64_t count) {
  std::uniform_real_distribution<float> uniform(-std::sqrt(3.0f), std::sqrt(3.0f));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = uniform(random);
  return values;
}

template <typename... Vectors>
size_t BytesOf(const Vectors&... vectors) {
  return ((vectors.size() * sizeof(vectors[0])) + ...);
}

}  // namespace

RingWorld::RingWorld(const AttentionShape& shape, int copies, Backend& backend, const OpTable& ops)
    : shape_(shape),
      copies_(copies),
      backend_(backend),
      ops_(ops),
      page_shape_{shape.page_tokens, shape.kv_heads, shape.head_dim, shape.head_dim,
                  shape.kv_dtype},
      page_bytes_(ops.kv_page_bytes(page_shape_)),
      ring_(shape.ranks) {}

absl::StatusOr<std::unique_ptr<RingWorld>> RingWorld::Create(const AttentionShape& shape,
                                                             int copies, Backend& backend,
                                                             const OpTable& ops) {
  std::unique_ptr<RingWorld> world(new RingWorld(shape, copies, backend, ops));
  std::vector<int32_t> pages(static_cast<size_t>(shape.ranks), 0);
  for (int32_t first = 0; first < shape.tokens; first += shape.page_tokens) {
    const int rank = first / shape.page_tokens % shape.ranks;
    world->table_.push_back({rank, pages[rank]++, first});
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    world->ranks_.push_back(std::make_unique<Rank>());
    world->ranks_.back()->page_count = pages[rank];
    ANNULUS_RETURN_IF_ERROR(world->AddRank(rank));
  }
  return world;
}

int64_t RingWorld::most_rows() const {
  const int32_t chunk = std::min(shape_.chunk_tokens, shape_.tokens);
  const int32_t pages = (chunk + shape_.page_tokens - 1) / shape_.page_tokens;
  return int64_t{(pages + shape_.ranks - 1) / shape_.ranks} * shape_.page_tokens;
}

absl::Status RingWorld::AddRank(int index) {
  Rank& rank = *ranks_[index];
  ANNULUS_ASSIGN_OR_RETURN(rank.stream,
                           backend_.CreateStream(std::max(1, shape_.threads / shape_.ranks)));
  ANNULUS_ASSIGN_OR_RETURN(rank.pages, backend_.Allocate(page_bytes_ * rank.page_count * copies_));
  ANNULUS_RETURN_IF_ERROR(FillPages(rank));
  std::mt19937 random(static_cast<uint32_t>(1 + index));
  const int64_t rows = most_rows();
  rank.query = RandomValues(random, rows * query_columns());
  rank.key_value = RandomValues(random, rows * key_columns());
  rank.o.resize(rows * query_columns());
  rank.lse.resize(rows * shape_.heads);
  if (shape_.ranks > 1) {
    rank.scratch_o.resize(rank.o.size());
    rank.scratch_lse.resize(rank.lse.size());
    rank.served_o.resize(rank.o.size() * (shape_.ranks - 1));
    rank.served_lse.resize(rank.lse.size() * (shape_.ranks - 1));
  }
  RingAttentionConfig config;
  config.shape = page_shape_;
  config.layer_page_bytes = page_bytes_;
  config.heads = shape_.heads;
  config.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  config.timeout = std::chrono::minutes(10);
  config.heartbeat = &heartbeat_;
  rank.attention =
      std::make_unique<RingAttention>(ring_.channel(index), backend_, ops_, *rank.stream, config);
  bytes_ +=
      rank.pages.size() + BytesOf(rank.query, rank.key_value, rank.o, rank.lse, rank.scratch_o,
                                  rank.scratch_lse, rank.served_o, rank.served_lse);
  return absl::OkStatus();
}

// A few pages of random keys and values, over and over: speed does not depend on them.
absl::Status RingWorld::FillPages(Rank& rank) {
  constexpr int32_t kDistinctPages = 8;
  std::mt19937 random(7);
  const int64_t tokens = shape_.page_tokens;
  std::vector<int32_t> slots(static_cast<size_t>(tokens));
  for (int32_t slot = 0; slot < tokens; ++slot) slots[slot] = slot;
  const int32_t distinct = std::min(kDistinctPages, rank.page_count);
  for (int32_t page = 0; page < distinct; ++page) {
    const std::vector<float> key = RandomValues(random, tokens * key_columns());
    const std::vector<float> value = RandomValues(random, tokens * key_columns());
    const std::vector<std::byte*> pages(static_cast<size_t>(tokens),
                                        rank.pages.data() + page * page_bytes_);
    KvAppendParams params;
    params.shape = page_shape_;
    params.k = {key.data(), tokens, key_columns(), key_columns()};
    params.v = {value.data(), tokens, key_columns(), key_columns()};
    params.pages = pages;
    params.slots = slots;
    ANNULUS_RETURN_IF_ERROR(ops_.kv_append(*rank.stream, params));
  }
  ANNULUS_RETURN_IF_ERROR(rank.stream->Synchronize());
  for (int64_t page = distinct; page < int64_t{rank.page_count} * copies_; ++page) {
    ANNULUS_RETURN_IF_ERROR(backend_.Copy(*rank.stream, rank.pages.data() + page * page_bytes_,
                                          rank.pages.data() + page % distinct * page_bytes_,
                                          page_bytes_));
  }
  return rank.stream->Synchronize();
}

void RingWorld::PlanItems(int32_t begin, int32_t end, RingMode mode, const Choice& choice, int copy,
                          Plan& plan) const {
  RingItem item;
  for (int rank = 0; rank < shape_.ranks; ++rank) item.ring.push_back(rank);
  item.mode = mode;
  item.begin = begin;
  item.end = end;
  item.positions.resize(static_cast<size_t>(shape_.ranks));
  item.pattern = choice.pattern;
  item.branches = choice.branches;
  for (int32_t row = begin; row < end; ++row) {
    item.positions[table_[row / shape_.page_tokens].rank].push_back(row);
  }
  Plan::Chunk chunk;
  chunk.copy = copy;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    item.index = rank;
    chunk.items.push_back(item);
    chunk.shards.push_back(BuildItemShards(item, table_, 0, shape_.page_tokens));
  }
  plan.chunks.push_back(std::move(chunk));
}

RingWorld::Plan RingWorld::PlanPrefill(const AttentionPolicy& asked, RingMode mode,
                                       int most_chunks) const {
  const AttentionPolicy policy = ResolvePolicy(asked, shape_.tokens);
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  Plan plan;
  double causal = 0;
  double planned = 0;
  const int32_t unit = shape_.page_tokens * shape_.ranks;
  const int32_t chunk = std::max(unit, shape_.chunk_tokens / unit * unit);
  const int64_t chunks = (shape_.tokens + chunk - 1) / chunk;
  int64_t planned_chunks = 0;
  const int64_t wanted = most_chunks == 0 ? chunks : std::min<int64_t>(most_chunks, chunks);
  for (int64_t c = 0; c < chunks; ++c) {
    const auto begin = static_cast<int32_t>(c * chunk);
    const int32_t end = std::min(shape_.tokens, begin + chunk);
    PairCount pairs = DensePairs(begin, end);
    std::shared_ptr<const BlockPattern> pattern;
    if (policy.kind != PolicyKind::kDense) {
      const auto start = std::chrono::steady_clock::now();
      pattern = std::make_shared<const BlockPattern>(
          BuildBlockPattern(policy, ShapeFor(policy, begin, end, shape_.kv_heads)));
      plan.list_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      plan.list_bytes += pattern->bytes();
      pairs = policy.kind == PolicyKind::kDilated
                  ? CountDilatedPairs(branches, shape_.heads, begin, end)
                  : CountPairs(*pattern, begin, end);
    }
    plan.pairs += pairs.chosen;
    causal += pairs.causal;
    // The middle of each of `wanted` equal parts.
    if (c != (2 * planned_chunks + 1) * chunks / (2 * wanted)) continue;
    ++planned_chunks;
    planned += pairs.chosen;
    PlanItems(begin, end, mode, {pattern, branches}, 0, plan);
  }
  plan.density = plan.pairs / causal;
  plan.share = planned / plan.pairs;
  return plan;
}

RingWorld::Plan RingWorld::PlanDecode() const {
  Plan plan;
  for (int copy = 0; copy < copies_; ++copy) {
    // Where the row's page lies is where it runs; as in the engine its query travels.
    PlanItems(shape_.tokens - 1, shape_.tokens, RingMode::kPassQ, {}, copy, plan);
    plan.pairs += shape_.tokens;
  }
  return plan;
}

absl::Status RingWorld::RunChunk(int index, const Plan::Chunk& chunk, uint64_t tag) {
  Rank& rank = *ranks_[index];
  RingItem item = chunk.items[index];
  const int64_t served = RingAttention::ServedRows({&item, 1});
  const int64_t rows = item.own_rows();
  const auto state = [&](std::vector<float>& o, std::vector<float>& lse, int64_t count) {
    return AttentionState{o.data(), lse.data(), count, shape_.heads, shape_.head_dim};
  };
  RingLayer layer;
  layer.tag = tag << 16;
  layer.items = {&item, 1};
  layer.shards = {&chunk.shards[index], 1};
  layer.query = {rank.query.data(), rows, query_columns(), query_columns()};
  layer.key = {rank.key_value.data(), rows, key_columns(), key_columns()};
  layer.value = layer.key;
  layer.page_data = [&](int32_t page) {
    return rank.pages.data() + (int64_t{rank.page_count} * chunk.copy + page) * page_bytes_;
  };
  layer.state = state(rank.o, rank.lse, rows);
  layer.scratch = state(rank.scratch_o, rank.scratch_lse, rows);
  layer.served = state(rank.served_o, rank.served_lse, served);
  return rank.attention->Run(layer);
}

absl::StatusOr<double> RingWorld::Run(const Plan& plan,
                                      const std::function<void(int32_t rows)>& done) {
  // Steps end together, as in the engine; a rank that fails lets the others pass.
  std::barrier<> step(shape_.ranks);
  std::vector<absl::Status> statuses(ranks_.size());
  std::atomic<bool> failed{false};
  const auto work = [&](int index) {
    for (size_t c = 0; c < plan.chunks.size(); ++c) {
      if (!failed.load()) {
        statuses[index] = RunChunk(index, plan.chunks[c], next_tag_ + c);
        if (!statuses[index].ok()) {
          ring_.channel(index).Abort(statuses[index]);
          failed.store(true);
        }
      }
      step.arrive_and_wait();
      const RingItem& item = plan.chunks[c].items[0];
      if (index == 0) done(item.end - item.begin);
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int rank = 1; rank < shape_.ranks; ++rank) threads.emplace_back(work, rank);
  work(0);
  for (std::thread& thread : threads) thread.join();
  const auto end = std::chrono::steady_clock::now();
  next_tag_ += plan.chunks.size();
  for (const absl::Status& status : statuses) ANNULUS_RETURN_IF_ERROR(status);
  return std::chrono::duration<double>(end - start).count();
}

}  // namespace annulus

#include "bench/attention/ring_world.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

#include "bench/attention/structured_head.h"
#include "engine/scheduler/placement.h"
#include "engine/sparse/block_pattern.h"
#include "engine/sparse/dilated.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// What the engine's step leaves to choosing is what an MLP takes later, which depends on the model;
// this is of the size that an 8B shape takes for some hundreds of rows. It is no memory of choosing
// alone, so no figure counts it.
constexpr size_t kChoosingBytes = size_t{64} << 20;

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
      ring_(backend, shape.ranks) {
  config_.shape = page_shape_;
  config_.layer_page_bytes = page_bytes_;
  config_.heads = shape_.heads;
  config_.scale = 1 / std::sqrt(static_cast<float>(shape_.head_dim));
  config_.timeout = std::chrono::minutes(10);
  config_.shards = ShardsOf(ops, shape.ranks);
  config_.heartbeat = &heartbeat_;
}

absl::StatusOr<std::unique_ptr<RingWorld>> RingWorld::Create(const AttentionShape& shape,
                                                             int copies, Backend& backend,
                                                             const OpTable& ops) {
  std::unique_ptr<RingWorld> world(new RingWorld(shape, copies, backend, ops));
  std::vector<int32_t> pages(static_cast<size_t>(shape.ranks), 0);
  for (int32_t first = 0; first < shape.tokens; first += shape.page_tokens) {
    const int rank = PlaceOnRing(first, shape.page_tokens, shape.ranks, ShardsFor(shape.ranks));
    world->table_.push_back({rank, pages[rank]++, first});
  }
  for (int rank = 0; rank < shape.ranks; ++rank) {
    world->ranks_.push_back(std::make_unique<Rank>());
    world->ranks_.back()->page_count = pages[rank];
    ANNULUS_RETURN_IF_ERROR(world->AddRank(rank));
  }
  return world;
}

int32_t RingWorld::chunk_rows() const {
  const int32_t unit = shape_.page_tokens * shape_.ranks;
  return std::max(unit, shape_.chunk_tokens / unit * unit);
}

// Of as many pages in a row as a chunk has, the most that one rank holds.
int64_t RingWorld::most_rows() const {
  const auto pages = static_cast<size_t>(chunk_rows() / shape_.page_tokens);
  std::vector<int64_t> held(static_cast<size_t>(shape_.ranks), 0);
  int64_t most = 0;
  for (size_t i = 0; i < table_.size(); ++i) {
    most = std::max(most, ++held[static_cast<size_t>(table_[i].rank)]);
    if (i + 1 >= pages) --held[static_cast<size_t>(table_[i + 1 - pages].rank)];
  }
  return most * shape_.page_tokens;
}

absl::Status RingWorld::AddRank(int index) {
  Rank& rank = *ranks_[index];
  ANNULUS_ASSIGN_OR_RETURN(rank.stream,
                           backend_.CreateStream(std::max(1, shape_.threads / shape_.ranks)));
  ANNULUS_ASSIGN_OR_RETURN(rank.pages, backend_.Allocate(page_bytes_ * rank.page_count * copies_));
  ANNULUS_RETURN_IF_ERROR(FillPages(rank));
  const int64_t summarised = PagesSummarised({true, true}, page_shape_, page_bytes_);
  rank.summary_pages.resize((rank.page_count + summarised - 1) / summarised);
  std::iota(rank.summary_pages.begin(), rank.summary_pages.end(), rank.page_count);
  std::mt19937 random(static_cast<uint32_t>(1 + index));
  const int64_t rows = most_rows();
  rank.query = RandomValues(random, rows * query_columns());
  rank.key_value = RandomValues(random, rows * key_columns());
  rank.o.resize(rows * query_columns());
  rank.lse.resize(rows * shape_.heads);
  if (shape_.ranks > 1) {
    const StateCounts states = StatesOfRing(shape_.ranks, config_.shards);
    rank.served_o.resize(rank.o.size() * (shape_.ranks - 1) * states.states);
    rank.served_lse.resize(rank.lse.size() * (shape_.ranks - 1) * states.states);
    rank.kept_o.resize(rank.o.size() * (states.kept_slots - 1));
    rank.kept_lse.resize(rank.lse.size() * (states.kept_slots - 1));
  }
  rank.attention =
      std::make_unique<RingAttention>(ring_.channel(index), backend_, ops_, *rank.stream, config_);
  bytes_ += rank.pages.size() + BytesOf(rank.query, rank.key_value, rank.o, rank.lse, rank.served_o,
                                        rank.served_lse, rank.kept_o, rank.kept_lse);
  return absl::OkStatus();
}

// Writes whole pages, whose rows are those of `key` and `value` in turn.
absl::Status RingWorld::Append(Rank& rank, std::span<const int32_t> pages,
                               const std::vector<float>& key, const std::vector<float>& value) {
  const int64_t rows = static_cast<int64_t>(key.size()) / key_columns();
  std::vector<std::byte*> places;
  std::vector<int32_t> slots;
  for (int64_t row = 0; row < rows; ++row) {
    places.push_back(rank.pages.data() + pages[row / shape_.page_tokens] * page_bytes_);
    slots.push_back(static_cast<int32_t>(row % shape_.page_tokens));
  }
  KvAppendParams params;
  params.shape = page_shape_;
  params.k = {key.data(), rows, key_columns(), key_columns()};
  params.v = {value.data(), rows, key_columns(), key_columns()};
  params.pages = places;
  params.slots = slots;
  ANNULUS_RETURN_IF_ERROR(ops_.kv_append(*rank.stream, params));
  return rank.stream->Synchronize();
}

// All pages behind the first ones repeat them.
absl::Status RingWorld::CopyPages(Rank& rank, int64_t distinct) {
  for (int64_t page = distinct; page < int64_t{rank.page_count} * copies_; ++page) {
    ANNULUS_RETURN_IF_ERROR(backend_.Copy(*rank.stream, rank.pages.data() + page * page_bytes_,
                                          rank.pages.data() + page % distinct * page_bytes_,
                                          page_bytes_));
  }
  return rank.stream->Synchronize();
}

// A few pages of random keys and values, over and over: speed does not depend on them.
absl::Status RingWorld::FillPages(Rank& rank) {
  constexpr int32_t kDistinctPages = 8;
  std::mt19937 random(7);
  const int32_t distinct = std::min(kDistinctPages, rank.page_count);
  for (int32_t page = 0; page < distinct; ++page) {
    const std::vector<float> key = RandomValues(random, shape_.page_tokens * key_columns());
    const std::vector<float> value = RandomValues(random, shape_.page_tokens * key_columns());
    ANNULUS_RETURN_IF_ERROR(Append(rank, {&page, 1}, key, value));
  }
  if (distinct == 0) return absl::OkStatus();
  return CopyPages(rank, distinct);
}

absl::Status RingWorld::UseStructuredHeads(const Plan& plan, uint32_t seed) {
  const auto columns = static_cast<size_t>(key_columns());
  const auto dim = static_cast<size_t>(shape_.head_dim);
  const int group = shape_.heads / shape_.kv_heads;
  // As wide as pages, so that a million tokens do not take twice the memory.
  std::vector<BFloat16> key(static_cast<size_t>(shape_.tokens) * columns), value(key.size());
  for (int kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
    const StructuredHead head = MakeStructuredHead(shape_.tokens, shape_.head_dim, kv_head, seed);
    for (size_t row = 0; row < static_cast<size_t>(shape_.tokens); ++row) {
      const size_t at = row * columns + kv_head * dim;
      ConvertFromFloat(DType::kBF16, head.key_row(row), &key[at], shape_.head_dim);
      ConvertFromFloat(DType::kBF16, head.value_row(row), &value[at], shape_.head_dim);
    }
    for (const Plan::Chunk& chunk : plan.chunks) {
      for (size_t r = 0; r < ranks_.size(); ++r) {
        const std::vector<int32_t>& rows = chunk.items[r].positions[r];
        std::vector<float>& queries = ranks_[r]->queries[chunk.items[r].begin];
        queries.resize(rows.size() * static_cast<size_t>(query_columns()));
        for (size_t row = 0; row < rows.size(); ++row) {
          for (int h = kv_head * group; h < (kv_head + 1) * group; ++h) {
            std::copy_n(head.query_row(rows[row]), dim,
                        queries.data() + (row * shape_.heads + h) * dim);
          }
        }
      }
    }
  }
  std::vector<float> page_key, page_value;
  for (const PageEntry& entry : table_) {
    const auto rows =
        static_cast<size_t>(std::min(shape_.page_tokens, shape_.tokens - entry.first_position));
    page_key.resize(rows * columns);
    page_value.resize(rows * columns);
    const size_t at = static_cast<size_t>(entry.first_position) * columns;
    ConvertToFloat(DType::kBF16, &key[at], page_key.data(), static_cast<int64_t>(rows * columns));
    ConvertToFloat(DType::kBF16, &value[at], page_value.data(),
                   static_cast<int64_t>(rows * columns));
    ANNULUS_RETURN_IF_ERROR(Append(*ranks_[entry.rank], {&entry.page, 1}, page_key, page_value));
  }
  for (const auto& rank : ranks_) {
    if (rank->page_count > 0) ANNULUS_RETURN_IF_ERROR(CopyPages(*rank, rank->page_count));
  }
  return absl::OkStatus();
}

void RingWorld::PlanItems(int32_t begin, int32_t end, RingMode mode, const Lists& lists, int copy,
                          Plan& plan) const {
  RingItem item;
  for (int rank = 0; rank < shape_.ranks; ++rank) item.ring.push_back(rank);
  item.mode = mode;
  item.begin = begin;
  item.end = end;
  item.positions.resize(static_cast<size_t>(shape_.ranks));
  item.pattern = lists.pattern;
  item.branches = lists.branches;
  for (int32_t row = begin; row < end; ++row) {
    item.positions[table_[row / shape_.page_tokens].rank].push_back(row);
  }
  Plan::Chunk chunk;
  chunk.copy = copy;
  for (int rank = 0; rank < shape_.ranks; ++rank) {
    item.index = rank;
    chunk.items.push_back(item);
    chunk.shards.push_back(BuildItemShards(item, table_, 0, shape_.page_tokens, config_.shards));
  }
  plan.chunks.push_back(std::move(chunk));
}

// The chunk's rows settle their lists when it runs.
void RingWorld::PlanChoice(const AttentionPolicy& policy, Plan::Chunk& chunk) const {
  const auto shared = std::make_shared<const AttentionPolicy>(policy);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    ChoosingItem& choosing = chunk.choosing.emplace_back();
    choosing.parts = {{shared, nullptr, std::vector<bool>(shape_.kv_heads, true)}};
    choosing.report_lists = true;
    choosing.candidates = chunk.shards[rank];
    choosing.summaries = &ranks_[rank]->summaries;
    choosing.summary_kinds = SummariesOf(policy);
    choosing.summary_pages = ranks_[rank]->summary_pages;
  }
}

RingWorld::Plan RingWorld::PlanPrefill(const AttentionPolicy& asked, RingMode mode,
                                       int most_chunks) const {
  const AttentionPolicy policy = ResolvePolicy(asked, shape_.tokens);
  const std::vector<DilatedBranch> branches = DilatedBranches(policy);
  Plan plan;
  double planned = 0;
  bool chooses = false;
  const int32_t chunk = chunk_rows();
  const int64_t chunks = (shape_.tokens + chunk - 1) / chunk;
  int64_t planned_chunks = 0;
  const int64_t wanted = most_chunks == 0 ? chunks : std::min<int64_t>(most_chunks, chunks);
  for (int64_t c = 0; c < chunks; ++c) {
    const auto begin = static_cast<int32_t>(c * chunk);
    const int32_t end = std::min(shape_.tokens, begin + chunk);
    PairCount pairs = DensePairs(begin, end);
    std::shared_ptr<const BlockPattern> pattern;
    if (FollowsPattern(policy)) {
      const auto start = std::chrono::steady_clock::now();
      pattern = std::make_shared<const BlockPattern>(
          BuildBlockPattern(policy, ShapeFor(policy, begin, end, shape_.kv_heads)));
      plan.list_seconds +=
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      plan.list_bytes += pattern->bytes();
      pairs = branches.empty() ? CountPairs(*pattern, begin, end)
                               : CountDilatedPairs(branches, shape_.heads, begin, end);
    }
    plan.pairs += pairs.chosen;
    plan.causal += pairs.causal;
    // The middle of each of `wanted` equal parts.
    if (c != (2 * planned_chunks + 1) * chunks / (2 * wanted)) continue;
    ++planned_chunks;
    PlanItems(begin, end, mode, {pattern, branches}, 0, plan);
    const bool choosing =
        ChoosesByContent(policy) && HowToChoose(policy, false, begin, end) != ChoiceKind::kNone;
    if (choosing) PlanChoice(policy, plan.chunks.back());
    if (!choosing) plan.known += pairs;
    chooses = chooses || choosing;
    planned += pairs.chosen;
  }
  plan.density = plan.pairs / plan.causal;
  // What chunks choose is not known ahead; but it changes slowly over chunks that are evenly
  // spread.
  plan.share = chooses ? static_cast<double>(planned_chunks) / static_cast<double>(chunks)
                       : planned / plan.pairs;
  return plan;
}

RingWorld::Plan RingWorld::PlanDecode(const AttentionPolicy& policy) const {
  Plan plan;
  plan.summarises = false;
  const bool chooses =
      HowToChoose(policy, true, shape_.tokens - 1, shape_.tokens) != ChoiceKind::kNone;
  for (int copy = 0; copy < copies_; ++copy) {
    // Where the row's page lies is where it runs; as in the engine its query travels.
    PlanItems(shape_.tokens - 1, shape_.tokens, RingMode::kPassQ, {}, copy, plan);
    plan.pairs += shape_.tokens;
    if (!chooses) continue;
    for (RingItem& item : plan.chunks.back().items) {
      item.sampled = true;
      item.sampled_anchor = table_.back().rank;
    }
    PlanChoice(policy, plan.chunks.back());
  }
  plan.causal = plan.pairs;
  return plan;
}

absl::Status RingWorld::MakeRoomForChoosing(const Plan& plan) {
  bool chooses = false;
  bool by_summaries = false;
  for (const Plan::Chunk& chunk : plan.chunks) {
    if (chunk.choosing.empty()) continue;
    chooses = true;
    by_summaries |= chunk.choosing.front().summary_kinds.any();
  }
  for (const auto& rank : ranks_) {
    if (chooses && rank->arena == nullptr) ANNULUS_RETURN_IF_ERROR(AddArena(*rank));
    if (!by_summaries || rank->summary_memory.size() > 0) continue;
    const size_t pages = rank->summary_pages.size() * static_cast<size_t>(copies_);
    ANNULUS_ASSIGN_OR_RETURN(rank->summary_memory, backend_.Allocate(pages * page_bytes_));
    bytes_ += rank->summary_memory.size();
  }
  return absl::OkStatus();
}

absl::Status RingWorld::AddArena(Rank& rank) {
  BufferPool::Options options;
  options.limit_bytes = kChoosingBytes;
  options.chunk_bytes = kMemoryAlignment;
  rank.memory = std::make_unique<BufferPool>(backend_, options);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                           rank.memory->Allocate(kChoosingBytes, Lifetime::kStep));
  rank.arena = std::make_unique<StepArena>(std::move(buffer), rank.memory->host_accessible());
  return absl::OkStatus();
}

std::byte* RingWorld::PageOf(Rank& rank, int copy, int32_t page) const {
  if (page < rank.page_count) {
    return rank.pages.data() + (int64_t{rank.page_count} * copy + page) * page_bytes_;
  }
  const int64_t of_copy = std::ssize(rank.summary_pages) * copy;
  return rank.summary_memory.data() + (of_copy + page - rank.page_count) * page_bytes_;
}

absl::Status RingWorld::RunChunk(int index, const Plan::Chunk& chunk, uint64_t tag) {
  Rank& rank = *ranks_[index];
  RingItem item = chunk.items[index];
  RingAttention::Note({&chunk.shards[index], 1}, {&item, 1});
  const StateRows states = RingAttention::Reserve({&item, 1});
  const int64_t rows = item.own_rows();
  const auto state = [&](std::vector<float>& o, std::vector<float>& lse, int64_t count) {
    return AttentionState{o.data(), lse.data(), count, shape_.heads, shape_.head_dim};
  };
  const auto own = rank.queries.find(item.begin);
  const std::vector<float>& queries = own == rank.queries.end() ? rank.query : own->second;
  RingLayer layer;
  layer.tag = tag << 16;
  layer.items = {&item, 1};
  layer.query = {queries.data(), rows, query_columns(), query_columns()};
  layer.key = {rank.key_value.data(), rows, key_columns(), key_columns()};
  layer.value = layer.key;
  layer.page_data = [&](int32_t page) { return PageOf(rank, chunk.copy, page); };
  ItemShards shards = chunk.shards[index];
  if (!chunk.choosing.empty()) {
    rank.messages = ChoiceMessages();
    ChoiceLayer choice;
    choice.tag = layer.tag;
    choice.layer = chunk.copy;
    choice.items = layer.items;
    choice.shards = {&shards, 1};
    choice.query = layer.query;
    choice.page_data = layer.page_data;
    BlockChooser chooser({rank.attention->link(), backend_, ops_, *rank.stream, config_,
                          rank.messages, *rank.arena, gates_});
    ANNULUS_RETURN_IF_ERROR(chooser.Run(choice, {&chunk.choosing[index], 1}, rank.reports));
  }
  layer.shards = {&shards, 1};
  layer.state = state(rank.o, rank.lse, rows);
  layer.served = state(rank.served_o, rank.served_lse, states.served);
  layer.kept = state(rank.kept_o, rank.kept_lse, states.kept);
  return rank.attention->Run(layer);
}

absl::StatusOr<double> RingWorld::Run(const Plan& plan,
                                      const std::function<void(int32_t rows)>& done) {
  ANNULUS_RETURN_IF_ERROR(MakeRoomForChoosing(plan));
  for (const auto& rank : ranks_) {
    rank->reports.clear();
    if (plan.summarises) rank->summaries.clear();
    rank->summaries.resize(static_cast<size_t>(copies_));
  }
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

absl::Status RingWorld::LookAt(const Plan& plan, AttentionObserver& observer) {
  Rank& rank = *ranks_.front();
  for (const Plan::Chunk& chunk : plan.chunks) {
    const RingItem& item = chunk.items.front();
    std::vector<KvPageView> pages;
    for (const PageEntry& entry : table_) {
      const int32_t tokens = std::min(shape_.page_tokens, item.end - entry.first_position);
      if (tokens <= 0) break;
      pages.push_back({rank.pages.data() + entry.page * page_bytes_, entry.first_position, tokens});
    }
    const auto own = rank.queries.find(item.begin);
    const std::vector<float>& queries = own == rank.queries.end() ? rank.query : own->second;
    ANNULUS_RETURN_IF_ERROR(
        observer.Observe({0,
                          config_,
                          ops_,
                          *rank.stream,
                          item.positions[0],
                          {queries.data(), item.own_rows(), query_columns(), query_columns()},
                          pages}));
  }
  return absl::OkStatus();
}

std::vector<LayerAttention> RingWorld::Reports() const {
  std::vector<LayerAttention> all;
  for (const auto& rank : ranks_) {
    all.insert(all.end(), rank->reports.begin(), rank->reports.end());
  }
  return all;
}

}  // namespace annulus::bench

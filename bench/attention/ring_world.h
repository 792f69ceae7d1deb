#ifndef ANNULUS_BENCH_ATTENTION_RING_WORLD_H_
#define ANNULUS_BENCH_ATTENTION_RING_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/heartbeat.h"
#include "engine/ring/in_process_channel.h"
#include "engine/ring/ring_attention.h"
#include "engine/runner/attention_observer.h"
#include "engine/runner/choice/block_chooser.h"
#include "engine/sparse/policy.h"
#include "kernels/registry.h"

namespace annulus::bench {

struct AttentionShape {
  int32_t tokens = 0;  // of the sequence
  int heads = 8;
  int kv_heads = 8;
  int head_dim = 64;
  DType kv_dtype = DType::kBF16;
  int page_tokens = 64;
  int ranks = 1;
  int threads = 1;              // of all ranks together; each rank has at least one
  int32_t chunk_tokens = 2048;  // rows that attend at once, on all ranks together
};

// One sequence's keys and values over a ring of ranks in this process, and what is needed to attend
// it: the attention of one layer as the engine runs it, without the rest of the engine. Pages are
// striped over the ranks. Keys, values and queries are random until UseStructuredHeads.
class RingWorld {
 public:
  // `copies` is the number of layers of pages, all with the same contents. Decode steps visit them
  // in turn, so that no cache still holds a layer's keys. RESOURCE_EXHAUSTED if there is not enough
  // memory. `backend` and `ops` must outlive the world.
  static absl::StatusOr<std::unique_ptr<RingWorld>> Create(const AttentionShape& shape, int copies,
                                                           Backend& backend, const OpTable& ops);

  // A run, prepared beforehand: the rows of each chunk and their block lists.
  struct Plan {
    struct Chunk {
      std::vector<RingItem> items;     // [rank]
      std::vector<ItemShards> shards;  // [rank]
      // [rank]; empty if the lists are known. Otherwise the lists are chosen when the chunk runs.
      std::vector<ChoosingItem> choosing;
      int copy = 0;
    };
    std::vector<Chunk> chunks;
    PairCount known;  // for the chunks whose lists are known
    // Whether every run computes the summaries of pages anew; if not, it keeps the previous run's.
    bool summarises = true;
    double causal = 0;   // (row, key) pairs of the whole sequence
    double pairs = 0;    // pairs attended, per head; those of chunks that choose count as all
    double density = 1;  // pairs / causal
    // Share of the whole sequence's time that the chunks take: their share of `pairs`, or of the
    // number of chunks if some choose their lists.
    double share = 1;
    double list_seconds = 0;  // time to build the block lists of the whole sequence
    size_t list_bytes = 0;    // of those lists
  };

  // Plans the rows of the sequence in chunks, under a policy. `mode` is kPassKv or kPassQ. Runs
  // only `most_chunks` of the chunks, evenly spread, unless it is 0.
  Plan PlanPrefill(const AttentionPolicy& policy, RingMode mode, int most_chunks) const;
  // Plans the last row, densely or under a policy for answers, once per copy.
  Plan PlanDecode(const AttentionPolicy& policy) const;

  // Replaces the sequence by structured heads, one per kv head, whose queries serve all query heads
  // of its group. From then on only the rows of the plan's chunks have queries.
  absl::Status UseStructuredHeads(const Plan& plan, uint32_t seed);
  // Shows the plan's chunks to an observer. Only with one rank.
  absl::Status LookAt(const Plan& plan, AttentionObserver& observer);
  // Gates for the policy `learned`; must outlive the world.
  void UseGates(const AttentionGates& gates) { gates_ = &gates; }

  // Runs the plan on all ranks. Calls `done` after each chunk with its number of rows, on one of
  // the ranks' threads. Returns the seconds from the start until the last rank ends.
  absl::StatusOr<double> Run(const Plan& plan, const std::function<void(int32_t rows)>& done);

  // What the chunks of the last run chose; each rank reports its own rows.
  std::vector<LayerAttention> Reports() const;

  // Bytes of pages, queries and states on all ranks.
  size_t bytes() const { return bytes_; }

 private:
  struct Rank {
    std::unique_ptr<Stream> stream;
    DeviceBuffer pages;  // [copy][page]
    int32_t page_count = 0;
    std::vector<int32_t> summary_pages;   // the pages after page_count that hold summaries
    DeviceBuffer summary_memory;          // [copy][summary page], once a plan needs them
    std::unique_ptr<BufferPool> memory;   // of `arena`
    std::unique_ptr<StepArena> arena;     // memory for choosing, once a plan does
    std::vector<float> query, key_value;  // [rows of a chunk, columns]
    std::vector<float> o, lse, served_o, served_lse, kept_o, kept_lse;
    std::unique_ptr<RingAttention> attention;
    std::map<int32_t, std::vector<float>> queries;  // of structured heads, by the chunk's first row
    ChoiceMessages messages;                        // for the running chunk
    std::vector<LayerSummaries> summaries;          // [copy]
    std::vector<LayerAttention> reports;
  };

  RingWorld(const AttentionShape& shape, int copies, Backend& backend, const OpTable& ops);
  absl::Status AddRank(int index);
  absl::Status FillPages(Rank& rank);
  // What a policy selected for some rows; if both are empty, all keys.
  struct Lists {
    std::shared_ptr<const BlockPattern> pattern;
    std::vector<DilatedBranch> branches;
  };
  void PlanItems(int32_t begin, int32_t end, RingMode mode, const Lists& lists, int copy,
                 Plan& plan) const;
  void PlanChoice(const AttentionPolicy& policy, Plan::Chunk& chunk) const;
  absl::Status Append(Rank& rank, std::span<const int32_t> pages, const std::vector<float>& key,
                      const std::vector<float>& value);
  absl::Status CopyPages(Rank& rank, int64_t distinct);
  absl::Status MakeRoomForChoosing(const Plan& plan);
  absl::Status AddArena(Rank& rank);
  std::byte* PageOf(Rank& rank, int copy, int32_t page) const;
  absl::Status RunChunk(int index, const Plan::Chunk& chunk, uint64_t tag);

  int64_t query_columns() const { return int64_t{1} * shape_.heads * shape_.head_dim; }
  int64_t key_columns() const { return int64_t{1} * shape_.kv_heads * shape_.head_dim; }
  int32_t chunk_rows() const;  // on all ranks
  int64_t most_rows() const;   // on one rank in a chunk

  const AttentionShape shape_;
  const int copies_;
  Backend& backend_;
  const OpTable& ops_;
  const KvPageShape page_shape_;
  const size_t page_bytes_;
  InProcessRing ring_;
  Heartbeat heartbeat_;
  RingAttentionConfig config_;
  const AttentionGates* gates_ = nullptr;
  std::vector<PageEntry> table_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t next_tag_ = 1;
  size_t bytes_ = 0;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_ATTENTION_RING_WORLD_H_

#ifndef ANNULUS_BENCH_ATTENTION_RING_WORLD_H_
#define ANNULUS_BENCH_ATTENTION_RING_WORLD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/heartbeat.h"
#include "engine/ring/in_process_channel.h"
#include "engine/ring/ring_attention.h"
#include "engine/sparse/policy.h"
#include "kernels/registry.h"

namespace annulus {

struct AttentionShape {
  int32_t tokens = 0;  // of the sequence
  int heads = 8;
  int kv_heads = 8;
  int head_dim = 64;
  DType kv_dtype = DType::kBF16;
  int page_tokens = 64;
  int ranks = 1;
  int threads = 1;              // all ranks together, at least one each
  int32_t chunk_tokens = 2048;  // rows that attend at once, all ranks together
};

// One sequence of random keys and values over a ring of ranks in this process, and what is needed
// to attend it: attention as the engine runs it in one layer, with nothing else around. Pages are
// striped over the ranks.
class RingWorld {
 public:
  // `copies`: how many layers of pages there are, all alike; a decode step visits one after the
  // other, so that it does not find the last one's keys in a cache. RESOURCE_EXHAUSTED where the
  // memory does not suffice. `backend` and `ops` must outlive the world.
  static absl::StatusOr<std::unique_ptr<RingWorld>> Create(const AttentionShape& shape, int copies,
                                                           Backend& backend, const OpTable& ops);

  // What one run does: the rows of each chunk and the block lists, built ahead of time.
  struct Plan {
    struct Chunk {
      std::vector<RingItem> items;     // [rank]
      std::vector<ItemShards> shards;  // [rank]
      int copy = 0;
    };
    std::vector<Chunk> chunks;
    double pairs = 0;         // (row, key) pairs of the whole sequence that are attended, per head
    double density = 1;       // of the causal pairs
    double share = 1;         // of `pairs` that the chunks attend
    double list_seconds = 0;  // of building the block lists of the whole sequence
    size_t list_bytes = 0;    // of those lists
  };

  // The rows of the sequence in chunks, under a policy; `mode` is kPassKv or kPassQ. `most_chunks`
  // of them, evenly spread; 0: all.
  Plan PlanPrefill(const AttentionPolicy& policy, RingMode mode, int most_chunks) const;
  // The last row, densely, once for each copy.
  Plan PlanDecode() const;

  // Runs the plan on all ranks; `done` hears of each chunk's rows, on one of the ranks' threads.
  // Seconds from the start to the end of the last rank.
  absl::StatusOr<double> Run(const Plan& plan, const std::function<void(int32_t rows)>& done);

  // Pages, queries and states of all ranks.
  size_t bytes() const { return bytes_; }

 private:
  struct Rank {
    std::unique_ptr<Stream> stream;
    DeviceBuffer pages;  // [copy][page]
    int32_t page_count = 0;
    std::vector<float> query, key_value;  // [rows of a chunk, columns]
    std::vector<float> o, lse, scratch_o, scratch_lse, served_o, served_lse;
    std::unique_ptr<RingAttention> attention;
  };

  RingWorld(const AttentionShape& shape, int copies, Backend& backend, const OpTable& ops);
  absl::Status AddRank(int index);
  absl::Status FillPages(Rank& rank);
  // What a policy chose for some rows; nothing: all.
  struct Choice {
    std::shared_ptr<const BlockPattern> pattern;
    std::vector<DilatedBranch> branches;
  };
  void PlanItems(int32_t begin, int32_t end, RingMode mode, const Choice& choice, int copy,
                 Plan& plan) const;
  absl::Status RunChunk(int index, const Plan::Chunk& chunk, uint64_t tag);

  int64_t query_columns() const { return int64_t{1} * shape_.heads * shape_.head_dim; }
  int64_t key_columns() const { return int64_t{1} * shape_.kv_heads * shape_.head_dim; }
  int64_t most_rows() const;  // of one rank in a chunk

  const AttentionShape shape_;
  const int copies_;
  Backend& backend_;
  const OpTable& ops_;
  const KvPageShape page_shape_;
  const size_t page_bytes_;
  InProcessRing ring_;
  Heartbeat heartbeat_;
  std::vector<PageEntry> table_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t next_tag_ = 1;
  size_t bytes_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_ATTENTION_RING_WORLD_H_

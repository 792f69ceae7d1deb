#ifndef ANNULUS_BENCH_KERNELS_ATTENTION_CASE_H_
#define ANNULUS_BENCH_KERNELS_ATTENTION_CASE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/shards.h"
#include "kernels/registry.h"

namespace annulus::bench {

// One layer's attention of one sequence, with queries, keys and values drawn from a seeded normal
// distribution.
struct AttentionShape {
  KvPageShape page;
  int group = 1;       // query heads per kv head
  int32_t tokens = 0;  // tokens in the pages
  // The query blocks: `blocks` blocks of `block_rows` consecutive positions, spread evenly, so that
  // their mean causal length is that of the whole sequence. A single block lies at the end instead.
  int32_t block_rows = 256;
  int blocks = 4;
  // Runs attend copies of the pages in turn, which together take at least this much memory. As with
  // the layers of a model, no cache holds a copy when the next run reads it.
  int64_t memory_bytes = 0;
  // below 1: random block lists (64 rows by one page) with this share of the causal blocks, always
  // including the first block and the diagonal
  double density = 1;
  // Virtual shards that the kernels sum in: a power of two up to kMostVirtualShards. Those of a
  // daemon by default.
  int shards = ShardsFor(1);
};

// The attention op over that shape, ready to run any number of times.
class AttentionCase {
 public:
  static absl::StatusOr<AttentionCase> Make(const OpTable& ops, Backend& backend,
                                            const AttentionShape& shape);

  // Attends the next copy of the pages.
  absl::Status Run(Stream& stream);

  double flops() const { return flops_; }        // of attended pairs
  double kv_bytes() const { return kv_bytes_; }  // of all pages, each counted once
  double density() const { return density_; }    // of the block lists

 private:
  AttentionCase() = default;
  absl::Status FillPages(const AttentionShape& shape, Backend& backend);
  void AddItem(const AttentionShape& shape, int32_t first, uint32_t seed);
  void AddLists(const AttentionShape& shape, uint32_t seed);

  struct Item {
    std::vector<int32_t> positions;
    std::vector<float> query;
    std::vector<float> o;
    std::vector<float> lse;
    std::vector<int32_t> block_rows;
    std::vector<int32_t> offsets;
    std::vector<int32_t> pages;
  };

  const OpTable* ops_ = nullptr;
  KvPageShape page_;
  int group_ = 1;
  int shards_ = 1;
  std::unique_ptr<std::byte, void (*)(void*)> memory_{nullptr, nullptr};
  int64_t copies_ = 1;
  int64_t copy_ = 0;               // the copy that the next run attends
  std::vector<KvPageView> views_;  // of all copies, one after the other
  std::vector<Item> items_;
  double flops_ = 0;
  double kv_bytes_ = 0;
  double density_ = 1;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_KERNELS_ATTENTION_CASE_H_

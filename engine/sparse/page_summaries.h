#ifndef ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_
#define ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/sparse/assignment.h"
#include "kernels/registry.h"

// Summaries of a sequence's keys, for policies that look at content: bounds of every kBoundTokens
// tokens, or the mean key of a page.
//
// Every row that chooses reads them, so they are stored with the keys: in pages of the rank's
// KvPool, which only ops access. The coordinator decides at admission which pages and how many,
// together with those for keys and values: for each cache group without a window and each rank,
// enough for all complete pages the sequence can have there. They belong to this sequence alone and
// are freed with it; for pages found in the cache it computes the summaries again.
//
// A layer's part of a summary page is a run (SummaryRuns) of n pages' summaries, in float32 planes.
// The sequence stores only the kinds that its policies need:
//   bounds: minimum [n, parts, kv_heads * k_dim], then maximum in the same shape
//   means: [n, kv_heads * k_dim]

namespace annulus {

// Tokens per bound, as in Quest (arXiv 2406.10774). The bounding box of 16 keys is far smaller than
// that of a page of 64, so the score that it allows is nearer to the keys' own scores.
inline constexpr int kBoundTokens = 16;

// Which summaries the layers of a sequence need.
struct SummaryKinds {
  bool bounds = false;
  bool means = false;

  bool any() const { return bounds || means; }
  bool operator==(const SummaryKinds&) const = default;
};
// The kinds that any of its policies needs. For `auto`, which has not chosen yet, what any of its
// choices may need.
SummaryKinds SummariesOf(const AttentionAssignment& assignment);

// How many pages one summary page covers: `part_bytes`, a layer's part of it, has room for that
// layer's summaries of so many. 0 if no summaries are needed. Otherwise at least 1, because they
// are smaller than the page: bounds and mean of 16 tokens take 12 bytes per key element, the keys
// and values of 16 tokens at least 32.
int64_t PagesSummarised(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes);

// One layer's part of the pages with a sequence's summaries on one rank.
class SummaryPlaces {
 public:
  // `parts`: start of the layer's part in each page, in device memory.
  SummaryPlaces(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes,
                std::span<std::byte* const> parts);

  SummaryRuns runs() const { return {runs_, pages_}; }
  // Where each plane begins, in elements from the start of a run.
  int64_t least() const { return 0; }
  int64_t greatest() const { return bounds_; }
  int64_t mean() const { return 2 * bounds_; }

 private:
  std::vector<float*> runs_;
  int64_t pages_;   // pages per run
  int64_t bounds_;  // elements in the plane of minimums
};

// Computes one kind of summaries for one layer of one sequence on one rank. Each page is summarised
// once, when it is complete, since complete pages never change. Not thread-safe.
class PageSummaries {
 public:
  // kBounds: bounds of every kBoundTokens tokens of a page. kMean: mean key of a page.
  enum class Kind : uint8_t { kBounds, kMean };

  explicit PageSummaries(Kind kind) : kind_(kind) {}

  // Summarises the complete pages of `pages`: all pages of the sequence on this rank, ascending.
  // They must begin with the pages that earlier calls saw. `places` must be the same in every call.
  absl::Status Extend(const OpTable& ops, Stream& stream, const KvPageShape& shape,
                      std::span<const KvPageView> pages, const SummaryPlaces& places);

  // Computes scores[row][head][page] for the first `count` <= pages() pages: see
  // SummaryScoresParams.
  absl::Status Score(const OpTable& ops, Stream& stream, const KvPageShape& shape, int heads,
                     const ConstMatrixView& query, int64_t count, const SummaryPlaces& places,
                     float* scores) const;

  int64_t pages() const { return pages_; }

 private:
  int parts(const KvPageShape& shape) const {
    return kind_ == Kind::kMean ? 1 : shape.page_tokens / kBoundTokens;
  }

  Kind kind_;
  int64_t pages_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_

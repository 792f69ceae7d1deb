#ifndef ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_
#define ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/sparse/assignment.h"
#include "kernels/registry.h"

// What policies that look at content keep of the keys of a sequence: bounds of every few tokens, or
// the mean key of a page. It is read for every row that chooses, so it lies where the keys lie: in
// pages of the rank's KvPool, which only ops touch. Which pages, and how many, the coordinator
// settles at admission, with those of the keys and values: for each cache group without a window
// and each rank as many as the complete pages that the sequence can have there need. They belong
// to the sequence alone, which makes the summaries itself of pages that it found cached, and go
// with it.
//
// A layer's part of such a page is a run (SummaryRuns) of n pages' summaries, in planes:
//   bounds: least [n, parts, kv_heads * k_dim], then greatest the same; means: [n, kv_heads *
//   k_dim]
// all in float32, of which the sequence has those that its policies ask for.

namespace annulus {

// Tokens of one bound, as in Quest (arXiv 2406.10774). The box around 16 keys is far smaller than
// the box around a page of 64, so fewer pages look better than they are.
inline constexpr int kBoundTokens = 16;

// The summaries that the layers of a sequence may ask for.
struct SummaryKinds {
  bool bounds = false;
  bool means = false;

  bool any() const { return bounds || means; }
  bool operator==(const SummaryKinds&) const = default;
};
// Those of all its policies; of `auto`, which is not settled yet, what any choice may need.
SummaryKinds SummariesOf(const AttentionAssignment& assignment);

// How many pages have their summaries of one layer in a layer's part of one page of `part_bytes`;
// 0 where none are kept. At least 1 else: 16 tokens' bounds and mean take 12 bytes for each element
// of a key, which with its value takes 32 in 16 tokens of the narrowest type.
int64_t PagesSummarised(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes);

// One layer's part of the pages that hold a sequence's summaries on one rank.
class SummaryPlaces {
 public:
  // `parts`: where each page's part of the layer begins, in memory of the device.
  SummaryPlaces(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes,
                std::span<std::byte* const> parts);

  SummaryRuns runs() const { return {runs_, pages_}; }
  // Where planes begin, in elements behind a run.
  int64_t least() const { return 0; }
  int64_t greatest() const { return bounds_; }
  int64_t mean() const { return 2 * bounds_; }

 private:
  std::vector<float*> runs_;
  int64_t pages_;   // of a run
  int64_t bounds_;  // elements of its least keys
};

// Summaries of one kind of one layer's keys, page by page, of one sequence on one rank. A page is
// summarised once, when it is complete: what is written never changes. Not thread-safe.
class PageSummaries {
 public:
  // Bounds of each kBoundTokens tokens of a page, or its mean.
  enum class Kind : uint8_t { kBounds, kMean };

  explicit PageSummaries(Kind kind) : kind_(kind) {}

  // Summarises the complete pages among `pages`: all pages of the sequence on this rank, ascending,
  // of which earlier calls saw the first ones. `places` are those of earlier calls.
  absl::Status Extend(const OpTable& ops, Stream& stream, const KvPageShape& shape,
                      std::span<const KvPageView> pages, const SummaryPlaces& places);

  // scores[row][head][page] of the first `count` <= pages() pages: SummaryScoresParams.
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

#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_ANTIDIAGONALS_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_ANTIDIAGONALS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/choice/choice.h"

namespace annulus {

// Estimates attention along antidiagonals (XAttention, arXiv 2503.16428) on a rank that holds keys:
// scores the rows of ring index `runner` against this rank's own pages. A row group is the rows at
// `stride` consecutive positions.
//
// Blocks are ranked by their share of a softmax over the keys of all ranks. That takes two phases,
// both on the device: first the sum of exponentials for each row group and query head; then, given
// the sums over all ranks, the mass of each block for each query block and kv head.
//
// The scores (one per row group, query head and block) never leave the device. They use whatever
// the step leaves free in its arena, which is at least what the operations after attention will
// take, and stay there between the phases. If that is too small, blocks of keys are scored in
// slices, and again in the second phase.
class Antidiagonals {
 public:
  // `runner`: the ring index whose rows are scored. Uses the query's positions and stride. All
  // references must outlive the object.
  Antidiagonals(const ChoiceContext& context, const ChoiceLayer& layer, const Choice& item,
                const ChoiceQuery& query, int runner);

  // First phase. Fills scored.sums, which the host may read once the stream has reached this point,
  // and scored.kept if that leaves `spare` bytes of the arena free.
  absl::Status Sum(const float* rows, size_t spare, ScoredRows& scored) const;
  // Second phase. `sums`: over all ranks, readable by ops. `masses`: [query blocks of the
  // runner][kv_heads][own blocks], host memory that ops can access.
  absl::Status Pool(const ScoredRows& scored, const float* sums, std::span<float> masses) const;
  // Both phases, for when no other rank holds keys. Processes as many query blocks at a time as
  // fit.
  absl::Status SumAndPool(const float* rows, std::span<float> masses) const;

 private:
  // A range of whole query blocks of the runner.
  struct Part {
    ConstMatrixView query;
    std::span<const int32_t> positions;
    std::vector<int32_t> ends;  // end of each query block, in row groups
    int64_t lists;              // row groups * heads
  };

  int64_t blocks() const { return static_cast<int64_t>(first_page_.size()) - 1; }
  size_t Room() const;
  size_t EndOfPart(size_t first, int64_t most) const;
  Part PartOf(const float* rows, size_t first, size_t count) const;
  absl::Status SumPart(const Part& part, size_t spare, ScoredRows& scored) const;
  absl::Status PoolPart(const Part& part, const ScoredRows& scored, const float* sums,
                        float* masses) const;
  absl::Status Score(const Part& part, int64_t first, int64_t count, float* scores) const;
  template <class Visit>
  absl::Status ForSlices(const Part& part, const Visit& visit) const;

  const ChoiceContext& context_;
  const Choice& item_;
  const ChoiceQuery& query_;
  const std::vector<int32_t>& positions_;
  std::vector<KvPageView> pages_;
  std::vector<size_t> first_page_;  // [blocks + 1]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_ANTIDIAGONALS_H_

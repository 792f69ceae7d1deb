#ifndef ANNULUS_ENGINE_RUNNER_ANTIDIAGONALS_H_
#define ANNULUS_ENGINE_RUNNER_ANTIDIAGONALS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/runner/choice.h"

namespace annulus {

// Estimates along antidiagonals on a rank that holds keys: of the rows of ring index `runner`
// against own pages. What is ranked by are shares of a softmax over the keys of all ranks, so there
// are two phases, both on the device: sums of exponentials for each row group and query head, then,
// with the sums of all ranks, masses for each query block and kv head.
//
// Scores, a number for each row group, query head and block, never leave the device. They lie in
// what the step leaves of its arena, which is at least what the blocks behind attention will take
// of it, and stay there between the phases. Where it is too small they are scored some blocks of
// keys at a time, and once more in the second phase.
class Antidiagonals {
 public:
  // Reads the query's positions and stride; all outlive it.
  Antidiagonals(const ChoiceContext& context, const ChoiceLayer& layer, const Choice& item,
                const ChoiceQuery& query, int runner);

  // First phase: fills sums, which the host may read behind the stream, and kept if afterwards
  // `spare` bytes of the arena are left.
  absl::Status Sum(const float* rows, size_t spare, ScoredRows& scored) const;
  // Second phase, with the sums of all ranks, which ops reach. `masses`: [query blocks of the
  // runner][kv_heads][own blocks], memory of the host that ops reach.
  absl::Status Pool(const ScoredRows& scored, const float* sums, std::span<float> masses) const;
  // Both where no other rank holds keys: for as many query blocks at a time as have room.
  absl::Status SumAndPool(const float* rows, std::span<float> masses) const;

 private:
  // Whole query blocks of the runner.
  struct Part {
    ConstMatrixView query;
    std::span<const int32_t> positions;
    std::vector<int32_t> ends;  // row groups of each query block
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

#endif  // ANNULUS_ENGINE_RUNNER_ANTIDIAGONALS_H_

#ifndef ANNULUS_BENCH_MODEL_LONE_READER_H_
#define ANNULUS_BENCH_MODEL_LONE_READER_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runner/attention_observer.h"
#include "engine/runner/rank_set.h"
#include "engine/sparse/assignment.h"

namespace annulus::bench {

// Reads texts with a model on one rank, one text after another and piece by piece, without the
// engine's loop: for tools that look at more than the engine reports. Not thread-safe.
class LoneReader {
 public:
  static constexpr int32_t kMostRows = 1024;  // per piece; a multiple of every page size

  struct Options {
    int threads = 1;
    int64_t longest = 0;                    // the most tokens of a text
    AttentionAssignment attention;          // auto is not allowed
    AttentionObserver* observer = nullptr;  // sees each layer; must outlive the reader
  };

  // `model` and `backend` must outlive the reader. INVALID_ARGUMENT if the policy does not fit the
  // model; RESOURCE_EXHAUSTED if keys and values of `longest` tokens do not fit in memory.
  static absl::StatusOr<std::unique_ptr<LoneReader>> Create(const RankModel& model,
                                                            Backend& backend,
                                                            const Options& options);

  // Starts a text of `tokens` tokens; the next piece is its beginning.
  absl::Status Begin(int64_t tokens);
  // Reads the next piece: at most kMostRows rows and, except for the last piece, whole pages.
  // Returns logits of every row if `logits`, else of the last one only.
  absl::StatusOr<RankResult> Read(std::span<const int32_t> tokens, bool logits);

 private:
  LoneReader(const RankModel& model, const Options& options);

  const RankModel& model_;
  const Options options_;
  std::unique_ptr<RankSet> ranks_;
  SequenceId sequence_ = 0;
  SequenceUpdate update_;  // for the text that begins
  uint64_t step_ = 0;
  int32_t next_ = 0;  // next row
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_LONE_READER_H_

#ifndef ANNULUS_BENCH_MODEL_BENCH_ANSWER_H_
#define ANNULUS_BENCH_MODEL_BENCH_ANSWER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/progress.h"
#include "engine/api.h"

namespace annulus::bench {

// A whole answer.
struct Answer {
  Completion completion;
  std::vector<int32_t> ids;
};

// Submits the request, greedy and past the end of text, waits for its end and shows the progress
// meanwhile. `operations_of` the prompt's tokens read so far: what reading them took, for the time
// left; null: the prompt was read, and counted, before. Returns the engine's error, or the
// request's.
absl::StatusOr<Answer> Generate(Engine& engine, RequestSpec spec, BenchProgress& progress,
                                const std::function<double(int64_t)>& operations_of = nullptr);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_BENCH_ANSWER_H_

#ifndef ANNULUS_BENCH_MODEL_FORCED_DECODE_H_
#define ANNULUS_BENCH_MODEL_FORCED_DECODE_H_

#include <array>
#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "bench/model/forced_answer.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "engine/api.h"

namespace annulus::bench {

struct ForcedDecodeOptions {
  int32_t depth = 0;      // as its rows say it
  int repeat = 1;         // runs; figures are medians
  double operations = 0;  // of a run, for the time left
};

// Times the same answer without and with guessing ahead, by turns, and returns a row of each. The
// engine must have read the prompt and be forced to this answer (EngineSeams::force_answer); if it
// answers with other tokens, INTERNAL. `name_ranks` writes what rows say of the engine's ranks.
absl::StatusOr<std::array<Row, 2>> ForcedDecode(Engine& engine, const ForcedAnswer& forced,
                                                const ForcedDecodeOptions& options,
                                                const std::function<void(Row&)>& name_ranks,
                                                BenchProgress& progress);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_FORCED_DECODE_H_

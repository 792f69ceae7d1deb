#ifndef ANNULUS_BENCH_SERVE_BESIDE_H_
#define ANNULUS_BENCH_SERVE_BESIDE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/row.h"
#include "bench/serve/load.h"
#include "client/connection.h"

namespace annulus {

// What a long prompt does to those who are served beside it.
struct BesideOptions {
  int32_t long_prompt = 8192;    // tokens, random ids
  int32_t stream_tokens = 4096;  // most tokens of the running stream, which reads a short prompt
  LoadOptions load =
      {};  // the short requests that arrive while the prompt is read; not its duration
};

struct BesideResult {
  double alone = 0;                      // seconds to the first token of a long prompt, by itself
  double beside = 0;                     // .. of another one, while the others are served
  std::vector<double> stream_gaps;       // seconds between tokens of the stream meanwhile
  std::vector<RequestOutcome> arrivals;  // the short requests
};

// Reads a long prompt alone, and then another one beside a running stream and short requests that
// arrive at random (open loop). `progress` hears what is going on. The error is that of the stream
// or of a long prompt; short requests may fail.
absl::StatusOr<BesideResult> RunBeside(const ConnectionOptions& connection,
                                       const BesideOptions& options,
                                       const std::function<void(const std::string&)>& progress);

// One row for the long prompt, one each for the stream and the short requests.
std::vector<Row> BesideRows(const BesideOptions& options, const BesideResult& result);

}  // namespace annulus

#endif  // ANNULUS_BENCH_SERVE_BESIDE_H_

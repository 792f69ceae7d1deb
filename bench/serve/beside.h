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

namespace annulus::bench {

// Measures how a long prompt affects the requests that are served at the same time.
struct BesideOptions {
  int32_t long_prompt = 8192;    // tokens, random ids
  int32_t stream_tokens = 4096;  // the most tokens of the running stream, which has a short prompt
  // The short requests that arrive while the prompt is read. Ignores duration and longest_prompt.
  LoadOptions load = {};
};

// One report of how far a prompt was read.
struct HeardProgress {
  double at = 0;    // seconds since the prompt was sent
  double done = 0;  // share of the tokens that had to be read
  double eta = 0;   // seconds that the daemon expected until the first token
};

struct BesideResult {
  double alone = 0;  // seconds to the first token of a long prompt that is served alone
  std::vector<HeardProgress> progress;  // of that prompt
  double beside = 0;                    // the same for a long prompt that is served with the others
  std::vector<double> stream_gaps;      // seconds between the stream's tokens meanwhile
  std::vector<RequestOutcome> arrivals;  // the short requests
};

// Lets the server read a long prompt alone, then another one while a stream is running and short
// requests arrive at random (open loop). Calls `progress` with what is going on. Returns an error
// if the stream or a long prompt fails; short requests may fail.
absl::StatusOr<BesideResult> RunBeside(const client::ConnectionOptions& connection,
                                       const BesideOptions& options,
                                       const std::function<void(const std::string&)>& progress);

// One row each for the long prompt, the reports of how far it was read when alone, the stream and
// the short requests.
std::vector<Row> BesideRows(const BesideOptions& options, const BesideResult& result);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_SERVE_BESIDE_H_

#ifndef ANNULUS_BENCH_SERVE_CROWD_H_
#define ANNULUS_BENCH_SERVE_CROWD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/report/row.h"
#include "bench/serve/load.h"
#include "client/connection.h"

namespace annulus::bench {

// Measures what many long prompts of one tenant cost the short requests of another.
struct CrowdOptions {
  int32_t prompts = 200;         // of the crowd, sent at once
  int32_t prompt_tokens = 2048;  // of each, random ids; answers have one token
  std::string token = {};        // the crowd's bearer token; empty: that of the short requests
  LoadOptions load = {};         // the short requests
};

struct CrowdResult {
  LoadResult alone;     // the short requests without the crowd
  LoadResult beside;    // as many in the same time, with other prompts, while the crowd waits
  int64_t refused = 0;  // prompts of the crowd that failed
  int64_t read = 0;     // that had their first token when the last short request ended
};

inline constexpr std::chrono::seconds kCrowdWait{120};

// Sends the short requests; then the crowd, waits until each of its prompts is in the server's
// queue, and sends short requests again; then cancels what is left of the crowd. Calls `progress`
// with what is going on. UNAVAILABLE if the crowd is not there within kCrowdWait; INVALID_ARGUMENT
// if no short request arrived, or if the whole crowd had ended before the last of them; errors of
// RunLoad. Short requests may fail.
absl::StatusOr<CrowdResult> RunCrowd(const client::ConnectionOptions& connection,
                                     const CrowdOptions& options,
                                     const std::function<void(const std::string&)>& progress);

// One row each for the first tokens of the short requests alone, the same beside the crowd, and the
// crowd. "failed" counts short requests; percentiles are of those that succeeded.
std::vector<Row> CrowdRows(const CrowdOptions& options, const CrowdResult& result);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_SERVE_CROWD_H_

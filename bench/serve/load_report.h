#ifndef ANNULUS_BENCH_SERVE_LOAD_REPORT_H_
#define ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

#include <vector>

#include "bench/report/row.h"
#include "bench/serve/load.h"

namespace annulus::bench {

// The result of a load as rows:
// - the throughput: "requests", which are "succeeded" + "rejected" + "cancelled" + "failed", and
//   rates of the requests that succeeded and of their tokens. If calls have a deadline, only those
//   that met it succeed; the others count as cancelled.
// - for each latency its mean and percentiles over the requests that succeeded: "latency" is
//   "time_to_first_token", "inter_token" or "e2e". If lengths differ, also
//   "time_to_first_token_shorter" and "_longer": prompts below the median length, and the rest.
// - for each code of failure: "code", "requests", "message" of the first.
std::vector<Row> LoadRows(const LoadOptions& options, const LoadResult& result);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

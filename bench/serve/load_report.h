#ifndef ANNULUS_BENCH_SERVE_LOAD_REPORT_H_
#define ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

#include <vector>

#include "bench/report/row.h"
#include "bench/serve/load.h"

namespace annulus {

// What a load came to: one row with the throughput ("requests", "succeeded", "failed", rates), one
// for each latency ("latency": "time_to_first_token", "inter_token", "e2e"; percentiles of the
// requests that succeeded), one for each code of failure ("code", "requests", "message" of the
// first).
std::vector<Row> LoadRows(const LoadOptions& options, const LoadResult& result);

}  // namespace annulus

#endif  // ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

#ifndef ANNULUS_BENCH_SERVE_LOAD_REPORT_H_
#define ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

#include <vector>

#include "bench/report/row.h"
#include "bench/serve/load.h"

namespace annulus {

// The result of a load as rows: one with the throughput ("requests", "succeeded", "failed", rates),
// one per latency ("latency": "time_to_first_token", "inter_token", "e2e"; percentiles over the
// requests that succeeded), and one per failure code ("code", "requests", "message" of the first).
std::vector<Row> LoadRows(const LoadOptions& options, const LoadResult& result);

}  // namespace annulus

#endif  // ANNULUS_BENCH_SERVE_LOAD_REPORT_H_

#ifndef ANNULUS_BENCH_CLI_H_
#define ANNULUS_BENCH_CLI_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace annulus::bench {

// Runs annulus-bench: writes measurements to `out`, progress and errors to `err`. Returns the exit
// code: 0, 1 if a measurement failed, 2 for misuse. `read_bytes`: see PeakMeter.
int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             size_t read_bytes);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_CLI_H_

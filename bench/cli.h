#ifndef ANNULUS_BENCH_CLI_H_
#define ANNULUS_BENCH_CLI_H_

#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

namespace annulus {

// annulus-bench: measurements on `out`, progress and complaints on `err`. Returns the exit code: 0,
// 1 where a measurement failed, 2 for misuse. `read_bytes`: what is read to measure memory.
int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             size_t read_bytes);

}  // namespace annulus

#endif  // ANNULUS_BENCH_CLI_H_

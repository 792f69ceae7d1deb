#ifndef ANNULUS_BENCH_CLI_H_
#define ANNULUS_BENCH_CLI_H_

#include <ostream>
#include <string>
#include <vector>

namespace annulus {

// annulus-bench: measurements on `out`, progress and complaints on `err`. Returns the exit code: 0,
// 1 where a measurement failed, 2 for misuse.
int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace annulus

#endif  // ANNULUS_BENCH_CLI_H_

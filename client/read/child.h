#ifndef ANNULUS_CLIENT_READ_CHILD_H_
#define ANNULUS_CLIENT_READ_CHILD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

struct ChildLimits {
  std::chrono::steady_clock::time_point deadline;
  int64_t output_bytes = 0;  // the most it may write to standard output
  int64_t memory = 0;        // address space, in bytes
};

struct ChildResult {
  int exit_code = 0;  // 128 + the signal's number if a signal ended the program
  std::string out;
  std::string err;  // the first 4 KiB
};

// In the command of RunChild: the path of a file that holds `input`.
inline constexpr char kInputPath[] = "/dev/fd/3";

// Runs a program found in PATH and waits until it ends. Kills the program and returns
// DEADLINE_EXCEEDED at the deadline, or RESOURCE_EXHAUSTED if it writes more than output_bytes.
// NOT_FOUND if there is no such program, INTERNAL if it cannot be started. The kernel also kills
// the program if the calling thread ends, however that happens.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& command,
                                     absl::string_view input, const ChildLimits& limits);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_CHILD_H_

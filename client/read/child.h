#ifndef ANNULUS_CLIENT_READ_CHILD_H_
#define ANNULUS_CLIENT_READ_CHILD_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

struct ChildLimits {
  std::chrono::steady_clock::time_point deadline;
  int64_t output_bytes = 0;
  int64_t memory = 0;  // address space
};

struct ChildResult {
  int exit_code = 0;  // 128 + the signal, if one ended it
  std::string out;
  std::string err;  // the first 4 KiB
};

// Argument that stands for the path of a file that holds `input`.
inline constexpr char kInputPath[] = "/dev/fd/3";

// Runs a program that is looked for in PATH, and waits for its end. NOT_FOUND if there is none,
// DEADLINE_EXCEEDED if it was killed at the deadline, RESOURCE_EXHAUSTED if it wrote too much. It
// ends with this process, whatever happens.
absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& command,
                                     absl::string_view input, const ChildLimits& limits);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_CHILD_H_

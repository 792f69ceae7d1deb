#ifndef ANNULUS_SERVER_DOCTOR_H_
#define ANNULUS_SERVER_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/config/server_config.h"

namespace annulus {

// What annulusd --doctor finds out about one thing that a daemon needs.
struct Finding {
  enum class Verdict : uint8_t {
    kGood,
    kAdvice,  // it serves, but slower or less than it could
    kBad      // it does not serve
  };
  std::string subject;
  Verdict verdict = Verdict::kGood;
  std::string what;    // what was found
  std::string remedy;  // what to do; empty if good
};

// What the daemon would find where it would run, of things that this folder does not read itself.
struct MachineFacts {
  // What the control groups around the process leave it; absent: no limit that can be seen.
  std::optional<uint64_t> group_memory;
  // Weights, keys and values will be in a GPU's memory, so the machine's need not hold them.
  bool on_gpu = false;
};

// Looks at the machine for a daemon of this configuration: processor, memory, huge pages, memory
// nodes, control group, open files, ports, model and the disk that it is on. Loads nothing; reads a
// part of the model's largest file. `root` stands before /proc and /sys, for tests.
std::vector<Finding> ExamineMachine(const ServerConfig& config, const MachineFacts& facts,
                                    const std::string& root = "");

// A line for each finding, and one for each remedy.
std::string FindingsText(const std::vector<Finding>& findings);

}  // namespace annulus

#endif  // ANNULUS_SERVER_DOCTOR_H_

#ifndef ANNULUS_SERVER_COMMAND_DOCTOR_H_
#define ANNULUS_SERVER_COMMAND_DOCTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/config/server_config.h"

namespace annulus::server {

// A result of annulusd --doctor about one thing that the daemon needs.
struct Finding {
  enum class Verdict : uint8_t {
    kGood,
    kAdvice,  // the daemon would serve, but slower or less than it could
    kBad      // the daemon would not serve
  };
  std::string subject;
  Verdict verdict = Verdict::kGood;
  std::string what;    // what was found
  std::string remedy;  // what to do; empty if good
};

// Facts about the machine that the caller must find out.
struct MachineFacts {
  // Memory that the control groups allow this process, in bytes; nullopt: no visible limit.
  std::optional<uint64_t> group_memory;
  // Whether weights, keys and values will be in the memory of a GPU instead of the host's.
  bool on_gpu = false;
};

// Examines the machine for a daemon with this configuration: processor, memory, huge pages, memory
// nodes, control group, open files, ports, the model and its disk. Does not load the model, but
// reads part of its largest file to measure the disk. `root` is prepended to /proc and /sys, for
// tests.
std::vector<Finding> ExamineMachine(const ServerConfig& config, const MachineFacts& facts,
                                    const std::string& root = "");

// Formats one line for each finding, and one for its remedy if it has one.
std::string FindingsText(const std::vector<Finding>& findings);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_COMMAND_DOCTOR_H_

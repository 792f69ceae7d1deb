#ifndef ANNULUS_TESTS_INTEGRATION_DAEMON_H_
#define ANNULUS_TESTS_INTEGRATION_DAEMON_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/test_data.h"

namespace annulus::server {

// A program that runs beside the test, with what it prints on both its streams. Killed at the end.
class Program {
 public:
  // `arguments` begin with the program's path or name. The environment is the test's without
  // ANNULUS_ variables, and `variables`, "NAME=value" each.
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& variables = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Signal(int number);
  pid_t pid() const { return pid_; }
  // The exit status, 128 + number for a signal; nothing when it still runs after `limit`.
  std::optional<int> WaitForExit(std::chrono::milliseconds limit);
  // The same, but what the program prints meanwhile is read by nobody.
  std::optional<int> WaitForExitUnread(std::chrono::milliseconds limit);
  // Reads until the output holds `text`; false after `limit` or at the end of the output.
  bool WaitForOutput(const std::string& text, std::chrono::milliseconds limit);
  const std::string& output() const { return output_; }

  // Of resident memory, in bytes: the peak so far, and now.
  size_t PeakMemory() const { return StatusNumber("VmHWM:") * 1024; }
  size_t ResidentMemory() const { return StatusNumber("VmRSS:") * 1024; }
  size_t Threads() const { return StatusNumber("Threads:"); }
  size_t Descriptors() const;  // open ones
  // What all of its threads have computed so far.
  double ProcessorSeconds() const;

 private:
  size_t StatusNumber(const std::string& name) const;
  bool HasExited();
  bool ReadSome(std::chrono::milliseconds limit);

  pid_t pid_ = -1;
  int pipe_ = -1;
  std::string output_;
  std::optional<int> status_;
};

// annulusd, built beside the test, on free ports.
class Daemon : public Program {
 public:
  explicit Daemon(std::vector<std::string> flags = {},
                  const std::vector<std::string>& variables = {},
                  const std::string& path = testing::BuildFolder() / "annulusd");

  // After it has printed that it is ready. Empty if it never does.
  bool WaitUntilReady();
  // After it has said that there is no device to compute with. False if it never does.
  bool WaitUntilWithoutDevice();
  // Known after either.
  std::string address() const { return Address(" port="); }
  std::string metrics_address() const { return Address(" metrics_port="); }

 private:
  std::string Address(const std::string& key) const;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_DAEMON_H_

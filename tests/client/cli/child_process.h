#ifndef ANNULUS_TESTS_CLIENT_CLI_CHILD_PROCESS_H_
#define ANNULUS_TESTS_CLIENT_CLI_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace annulus::testing {

// A running program with pipes to its standard streams. Killed by the destructor if it still runs.
class ChildProcess {
 public:
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void Write(const std::string& text);
  void CloseInput();
  // Closes this end of the program's standard output, as `| head` would.
  void CloseOutput();
  void Signal(int signal);

  // Reads standard output until it holds `text` or ends; all that was read so far.
  std::string ReadOutputUntil(const std::string& text);

  // Reads the rest of both outputs and waits for the end. The exit code, or 128 + the signal that
  // ended it.
  int Wait();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  pid_t pid_ = -1;
  int in_fd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string out_;
  std::string err_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_CLI_CHILD_PROCESS_H_

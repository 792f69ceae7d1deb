#include "tests/integration/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>
#include <utility>

#include "kernels/base/check.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The first of two entries with one name counts.
std::vector<char*> Environment(const std::vector<std::string>& variables) {
  std::vector<char*> kept;
  for (const std::string& variable : variables) {
    kept.push_back(const_cast<char*>(variable.c_str()));
  }
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "ANNULUS_", 8) != 0) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// ANNULUS_TEST_DEVICE: the device of daemons whose flags name none. ANNULUS_TEST_KERNELS: there,
// the kernels of those that keep pages in a tier.
std::vector<std::string> DaemonArguments(const std::string& path, std::vector<std::string> flags) {
  const auto has = [&flags](const char* flag) {
    return std::count(flags.begin(), flags.end(), flag) > 0;
  };
  const char* const device = std::getenv("ANNULUS_TEST_DEVICE");
  const char* const kernels = std::getenv("ANNULUS_TEST_KERNELS");
  if (device != nullptr && !has("--device")) {
    if (kernels != nullptr && (has("--kv-disk") || has("--kv-host"))) {
      flags.insert(flags.end(), {"--gpu-kernels", kernels});
    }
    flags.insert(flags.end(), {"--device", device});
  }
  if (!has("--admin-listen")) {
    flags.insert(flags.end(), {"--admin-listen", "off"});  // a killed one would leave its socket
  }
  const std::vector<std::string> first = {path, "--listen", "127.0.0.1:0", "--metrics",
                                          "127.0.0.1:0"};
  flags.insert(flags.begin(), first.begin(), first.end());
  return flags;
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& variables) {
  int ends[2];
  ANNULUS_CHECK(pipe2(ends, O_CLOEXEC) == 0) << "no pipe";
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment = Environment(variables);
  pid_ = fork();
  ANNULUS_CHECK(pid_ >= 0) << "no process";
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execvpe(argv[0], argv.data(), environment.data());
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

Program::~Program() {
  if (!status_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pipe_);
}

void Program::Signal(int number) { kill(pid_, number); }

bool Program::HasExited() {
  int raw = 0;
  if (!status_ && waitpid(pid_, &raw, WNOHANG) == pid_) {
    status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  }
  return status_.has_value();
}

std::optional<int> Program::WaitForExit(milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!HasExited()) {
    if (steady_clock::now() > until) return std::nullopt;
    ReadSome(milliseconds(5));
  }
  while (ReadSome(milliseconds(0))) {
  }
  return status_;
}

std::optional<int> Program::WaitForExitUnread(milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!HasExited() && steady_clock::now() <= until) {
    std::this_thread::sleep_for(milliseconds(2));
  }
  return status_;
}

bool Program::WaitForOutput(const std::string& text, milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (output_.find(text) == std::string::npos) {
    const auto left = std::chrono::duration_cast<milliseconds>(until - steady_clock::now());
    if (left.count() <= 0 || !ReadSome(left)) return false;
  }
  return true;
}

bool Program::ReadSome(milliseconds limit) {
  pollfd descriptor{pipe_, POLLIN, 0};
  if (poll(&descriptor, 1, static_cast<int>(limit.count())) <= 0) return false;
  char buffer[4096];
  const ssize_t size = read(pipe_, buffer, sizeof(buffer));
  if (size <= 0) {
    std::this_thread::sleep_for(std::min(limit, milliseconds(5)));  // at its end; do not spin on it
    return false;
  }
  output_.append(buffer, static_cast<size_t>(size));
  return true;
}

size_t Program::StatusNumber(const std::string& name) const {
  std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(name, 0) == 0) return std::stoull(line.substr(name.size()));
  }
  return 0;
}

size_t Program::Descriptors() const {
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid_) + "/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

double Program::ProcessorSeconds() const {
  std::ifstream stat("/proc/" + std::to_string(pid_) + "/stat");
  const std::string line{std::istreambuf_iterator<char>(stat), {}};
  // Fields 14 and 15, in ticks; the second one is the name in brackets (proc(5)).
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Daemon::Daemon(std::vector<std::string> flags, const std::vector<std::string>& variables,
               const std::string& path)
    : Program(DaemonArguments(path, std::move(flags)), variables) {}

bool Daemon::WaitUntilReady() {
  return WaitForOutput(" ready ", std::chrono::seconds(60)) &&
         WaitForOutput("metrics_port=", std::chrono::seconds(1));
}

bool Daemon::WaitUntilWithoutDevice() {
  return WaitForOutput(" no_device ", std::chrono::seconds(60)) &&
         WaitForOutput("metrics_port=", std::chrono::seconds(1));
}

std::string Daemon::Address(const std::string& key) const {
  size_t ready = output().find(" ready ");
  if (ready == std::string::npos) ready = output().find(" no_device ");
  const size_t at = ready == std::string::npos ? ready : output().find(key, ready);
  if (at == std::string::npos) return "";
  return "127.0.0.1:" + std::to_string(std::stoi(output().substr(at + key.size())));
}

}  // namespace annulus::server

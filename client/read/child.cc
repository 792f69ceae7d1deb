#include "client/read/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

constexpr size_t kErrorBytes = 4096;
constexpr int kInputDescriptor = 3;  // the child's; kInputPath names it
constexpr int kNoProgram = 127;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { Reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void Reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

bool WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return lseek(fd, 0, SEEK_SET) == 0;
}

struct Streams {
  int in = -1;  // becomes kInputDescriptor
  int out = -1;
  int err = -1;
};

// Turns the forked child into the program. Between fork and exec, only functions that are safe in
// signal handlers may be called.
[[noreturn]] void Become(char* const* arguments, const Streams& streams, int64_t memory,
                         rlim_t seconds, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNoProgram);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Move them above the descriptors that dup2 overwrites below.
  const int in = fcntl(streams.in, F_DUPFD_CLOEXEC, 10);
  const int out = fcntl(streams.out, F_DUPFD_CLOEXEC, 10);
  const int err = fcntl(streams.err, F_DUPFD_CLOEXEC, 10);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (dup2(nothing, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
      dup2(err, STDERR_FILENO) < 0 || dup2(in, kInputDescriptor) < 0) {
    _exit(kNoProgram);
  }
  const rlimit address_space{static_cast<rlim_t>(memory), static_cast<rlim_t>(memory)};
  const rlimit processor{seconds, seconds + 1};
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_AS, &address_space);
  setrlimit(RLIMIT_CPU, &processor);
  setrlimit(RLIMIT_CORE, &no_core);
  execvp(arguments[0], arguments);
  const int error = errno;
  // The message tells RunChild that the program did not start, since a program can exit with
  // kNoProgram too.
  constexpr char kMessage[] = "annulus-no-program";
  if (error == ENOENT || error == EACCES) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  }
  _exit(kNoProgram);
}

// Reads both pipes to their ends. An error says why the child must be killed.
absl::Status Collect(Descriptor& out, Descriptor& err, const ChildLimits& limits,
                     ChildResult& result) {
  std::vector<char> buffer(1 << 16);
  while (out.get() >= 0 || err.get() >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        limits.deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return absl::DeadlineExceededError("the time is up");
    pollfd polled[] = {{out.get(), POLLIN, 0}, {err.get(), POLLIN, 0}};
    const auto wait = std::min<int64_t>(left.count(), 60000);
    if (poll(polled, 2, static_cast<int>(wait)) < 0 && errno != EINTR) {
      return absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
    }
    for (const bool is_out : {true, false}) {
      if (polled[is_out ? 0 : 1].revents == 0) continue;
      Descriptor& from = is_out ? out : err;
      const ssize_t size = read(from.get(), buffer.data(), buffer.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) {
        from.Reset();
        continue;
      }
      std::string& to = is_out ? result.out : result.err;
      to.append(buffer.data(), static_cast<size_t>(size));
      if (!is_out && to.size() > kErrorBytes) to.resize(kErrorBytes);
      if (is_out && static_cast<int64_t>(to.size()) > limits.output_bytes) {
        return absl::ResourceExhaustedError("too much output");
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ChildResult> RunChild(const std::vector<std::string>& command,
                                     absl::string_view input, const ChildLimits& limits) {
  const Descriptor file(memfd_create("annulus", MFD_CLOEXEC));
  int out_pipe[2], err_pipe[2];
  if (file.get() < 0 || !WriteAll(file.get(), input) || pipe2(out_pipe, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", strerror(errno)));
  }
  Descriptor out(out_pipe[0]), out_end(out_pipe[1]);
  if (pipe2(err_pipe, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", strerror(errno)));
  }
  Descriptor err(err_pipe[0]), err_end(err_pipe[1]);
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  const Streams streams{file.get(), out_end.get(), err_end.get()};
  const auto seconds =
      std::chrono::ceil<std::chrono::seconds>(limits.deadline - std::chrono::steady_clock::now());
  const auto processor = static_cast<rlim_t>(std::max<int64_t>(seconds.count(), 1));
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) Become(arguments.data(), streams, limits.memory, processor, parent);
  if (child < 0) {
    return absl::InternalError(absl::StrCat("cannot start ", command[0], ": ", strerror(errno)));
  }
  out_end.Reset();
  err_end.Reset();
  ChildResult result;
  const absl::Status collected = Collect(out, err, limits, result);
  if (!collected.ok()) kill(child, SIGKILL);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!collected.ok()) return collected;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (result.exit_code == kNoProgram && result.err == "annulus-no-program") {
    return absl::NotFoundError(absl::StrCat("there is no program ", command[0]));
  }
  return result;
}

}  // namespace annulus::client

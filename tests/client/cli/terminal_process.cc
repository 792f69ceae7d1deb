#include "tests/client/cli/terminal_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace annulus::testing {
namespace {

constexpr int kPatienceMs = 20000;

}  // namespace

TerminalProcess::TerminalProcess(std::vector<std::string> command) {
  command.insert(command.begin(),
                 {"/usr/bin/env", "XDG_CONFIG_HOME=/nonexistent", "TERM=xterm", "LC_ALL=C.UTF-8"});
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  fd_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  EXPECT_EQ(grantpt(fd_) | unlockpt(fd_), 0);
  Resize(80);
  const std::string terminal = ptsname(fd_);
  // A session leader's first terminal becomes the one that Ctrl-C is typed on.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, terminal.c_str(), O_RDWR, 0);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, STDIN_FILENO, STDERR_FILENO);
  EXPECT_EQ(posix_spawn(&pid_, arguments[0], &actions, &attributes, arguments.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
}

TerminalProcess::~TerminalProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(fd_);
}

void TerminalProcess::Type(const std::string& keys) {
  EXPECT_EQ(write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
}

void TerminalProcess::Resize(int columns) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  EXPECT_EQ(ioctl(fd_, TIOCSWINSZ, &size), 0);
}

bool TerminalProcess::ReadMore(std::string& text) {
  pollfd descriptor{fd_, POLLIN, 0};
  if (poll(&descriptor, 1, kPatienceMs) <= 0) return false;
  char buffer[4096];
  const ssize_t size = read(fd_, buffer, sizeof(buffer));
  if (size > 0) text.append(buffer, static_cast<size_t>(size));
  return size > 0;  // once the program has ended, reading fails
}

std::string TerminalProcess::ReadUntil(const std::string& text) {
  size_t at = 0;
  while ((at = unread_.find(text)) == std::string::npos) {
    if (ReadMore(unread_)) continue;
    ADD_FAILURE() << "\"" << text << "\" did not appear; what did: " << unread_;
    return unread_;
  }
  const std::string read = unread_.substr(0, at + text.size());
  unread_.erase(0, read.size());
  return read;
}

void TerminalProcess::AwaitPrompt(const std::string& prompt) {
  ReadUntil(prompt);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (TakesLines() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(TakesLines()) << "no line is edited";
}

int TerminalProcess::Wait(std::string* said) {
  std::string rest = unread_;
  while (ReadMore(rest)) {
  }
  pollfd descriptor{fd_, POLLIN, 0};
  if (poll(&descriptor, 1, 0) == 0) {
    ADD_FAILURE() << "the program does not end; what it said: " << rest;
    kill(pid_, SIGKILL);
  }
  if (said != nullptr) *said = rest;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool TerminalProcess::TakesLines() const {
  termios state{};
  return tcgetattr(fd_, &state) == 0 && (state.c_lflag & ICANON) != 0;
}

}  // namespace annulus::testing

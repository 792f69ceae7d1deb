#include "tests/client/cli/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace annulus::testing {
namespace {

// False at the end.
bool ReadMore(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  if (size > 0) text.append(buffer, static_cast<size_t>(size));
  return size > 0;
}

void CloseOnce(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& command) {
  int in[2], out[2], err[2];
  EXPECT_EQ(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  // What the user of this machine has configured is not for tests.
  std::vector<std::string> words = {"/usr/bin/env", "XDG_CONFIG_HOME=/nonexistent"};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments;
  for (const std::string& argument : words) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  EXPECT_EQ(posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  in_fd_ = in[1];
  out_fd_ = out[0];
  err_fd_ = err[0];
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  CloseInput();
  CloseOnce(out_fd_);
  CloseOnce(err_fd_);
}

void ChildProcess::Write(const std::string& text) {
  EXPECT_EQ(write(in_fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}
void ChildProcess::CloseInput() { CloseOnce(in_fd_); }
void ChildProcess::CloseOutput() { CloseOnce(out_fd_); }
void ChildProcess::Signal(int signal) { kill(pid_, signal); }

std::string ChildProcess::ReadOutputUntil(const std::string& text) {
  while (out_.find(text) == std::string::npos && ReadMore(out_fd_, out_)) {
  }
  return out_;
}

int ChildProcess::Wait() {
  CloseInput();
  while (out_fd_ >= 0 && ReadMore(out_fd_, out_)) {
  }
  while (ReadMore(err_fd_, err_)) {
  }
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace annulus::testing

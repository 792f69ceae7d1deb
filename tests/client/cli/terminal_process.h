#ifndef ANNULUS_TESTS_CLIENT_CLI_TERMINAL_PROCESS_H_
#define ANNULUS_TESTS_CLIENT_CLI_TERMINAL_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace annulus::testing {

// A program on a terminal of its own (a pty of 80 columns). Killed by the destructor if it still
// runs.
class TerminalProcess {
 public:
  explicit TerminalProcess(std::vector<std::string> command);
  ~TerminalProcess();
  TerminalProcess(const TerminalProcess&) = delete;
  TerminalProcess& operator=(const TerminalProcess&) = delete;

  // As if somebody typed it: "\r" is the return key, "\x03" Ctrl-C, "\x04" Ctrl-D.
  void Type(const std::string& keys);

  // As if somebody pulled the window's edge.
  void Resize(int columns);

  // What appears after what was read before, up to the end of `text`. Fails the test after twenty
  // seconds.
  std::string ReadUntil(const std::string& text);

  // Reads up to the end of `prompt` and waits until a line is edited key by key: what is typed
  // between the two would be taken in the terminal's own way. Fails the test as ReadUntil does.
  void AwaitPrompt(const std::string& prompt);

  // Reads the rest, into `said` if that is given, and waits for the end. The exit code, or 128 +
  // the signal that ended it; a program that says nothing for twenty seconds is killed.
  int Wait(std::string* said = nullptr);

  // Whether the program is given whole lines: nobody edits one key by key.
  bool TakesLines() const;

 private:
  // False at the end or after twenty seconds.
  bool ReadMore(std::string& text);

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string unread_;  // appeared, and not returned yet
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_CLI_TERMINAL_PROCESS_H_

#ifndef ANNULUS_TESTS_INTEGRATION_TYPED_H_
#define ANNULUS_TESTS_INTEGRATION_TYPED_H_

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tests/client/cli/terminal_process.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {

// What somebody types into a shell, and what appears.
struct TypedLine {
  std::string line;
  int exit_code = 0;
  std::vector<std::string> shows = {};  // each of them appears
  std::vector<std::string> hides = {};  // none of them does
};

// The real programs on a real terminal: a shell in a folder of its own, where `annulus` is found by
// its name and speaks to one daemon of the recall model, which all tests of a suite share. That
// model continues a line with what followed the same words in a document, so answers are foreseen.
class TypedTest : public ::testing::Test {
 protected:
  // Of the daemon: a longer document is cut into parts by `summarize`.
  static constexpr int kContext = 32768;

  static void SetUpTestSuite();
  static void TearDownTestSuite();

  // A shell that runs `line` on a terminal of 80 columns.
  testing::TerminalProcess Start(const std::string& line) const;

  // Runs every line to its end and compares what it shows; "\r\n" is read as "\n". The terminal is
  // wide enough to break no line.
  void Type(std::initializer_list<TypedLine> lines) const;

  // Runs a line to its end; returns what it showed.
  std::string Shown(const std::string& line, int exit_code = 0) const;

  // Writes a file of the folder, reads it whole, and says where it is.
  void Write(const std::string& name, const std::string& text) const { folder_.Write(name, text); }
  std::string Read(const std::string& name) const;
  std::string Path(const std::string& name) const { return folder_.path() / name; }

  static std::unique_ptr<Daemon> daemon_;
  const testing::TempDirectory folder_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_TYPED_H_

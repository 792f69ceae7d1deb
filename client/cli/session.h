#ifndef ANNULUS_CLIENT_CLI_SESSION_H_
#define ANNULUS_CLIENT_CLI_SESSION_H_

#include <grpcpp/support/status.h>

#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/strings/string_view.h"
#include "client/cli/chat/line_source.h"
#include "client/connection.h"
#include "client/format/json.h"
#include "client/format/progress.h"

namespace annulus::client {

// The streams that a command reads and writes. Tests use string streams.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // Returns the current width of the terminal.
  std::function<int()> columns = [] { return 80; };
  // Creates a line editor for the terminal. If empty, lines are read from `in`.
  std::function<std::unique_ptr<LineSource>()> edit_lines = nullptr;
};

// Options that every command takes.
struct CommonOptions {
  ConnectionOptions connection;
  bool json = false;
  bool quiet = false;
  std::string profile;            // in the user's configuration; empty: its default one
  std::string progress = "auto";  // auto, always or never
  bool dumb_terminal = false;     // the terminal cannot redraw lines
};

// Returns the value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const char*)>;

// The context of a command: the connection, the console, and functions that write to it uniformly.
class Session {
 public:
  // All must outlive the session.
  Session(Console& console, const CommonOptions& options, Connection& connection,
          Cancellation& cancellation);
  // A session with the same server that writes to another console.
  Session(Session& other, Console& console, const CommonOptions& options);

  Console& console() { return console_; }
  const CommonOptions& options() const { return options_; }
  Connection& connection() { return connection_; }
  // The progress display. On a terminal, a thread keeps its times up to date while there is no news
  // from the server.
  ProgressDisplay& progress();
  bool interrupted() const { return cancellation_.cancelled(); }

  // Cancels the calls in flight and all later ones, like an interruption.
  void CancelCalls() { cancellation_.Cancel(); }

  // Resets the interruption, so that further calls can be made.
  void ForgetInterruption() { cancellation_.Rearm(); }

  // From now on, an interruption between calls does not end the program; a second one before
  // ForgetInterruption does.
  void StayWhenInterrupted() { cancellation_.Stay(); }

  // Writes to standard output and flushes. On a terminal, replaces control characters, because the
  // text may come from a model or a server.
  void Print(absl::string_view text);

  // The same, but on a terminal also wraps lines. Continuation lines begin with `indent` blanks.
  void PrintWrapped(absl::string_view text, int indent);

  // The width that a table may have; 0 (no limit) if standard output is not a terminal.
  int table_columns() const { return console_.out_is_terminal ? console_.columns() : 0; }

  // Writes to standard error, without control characters, and wraps like PrintWrapped.
  void Remark(absl::string_view text, int indent);

  // Writes a message to standard error, unless --quiet is given.
  void Warn(absl::string_view message);

  // These print an error and return its exit code. With --json, CallFailed also prints the error as
  // a JSON object to standard output, unless `told`: the caller has already printed one.
  int Misuse(absl::string_view message);
  int CallFailed(const grpc::Status& status, bool told = false);
  int CannotWrite(absl::string_view what);

  // With --json, prints a failed call as an object; no-op otherwise. For callers that print their
  // own message instead of using CallFailed.
  void PrintFailure(const grpc::Status& status);

  // False once writing to standard output has failed, so that further output would be lost.
  bool CanPrint() const { return !console_.out.fail(); }

  // Flushes standard output and returns the exit code: 0, or 1 if writing failed.
  int Finish();

 private:
  void Complain(absl::string_view message);

  Console& console_;
  const CommonOptions& options_;
  Connection& connection_;
  Cancellation& cancellation_;
  ProgressDisplay progress_;
  std::optional<ProgressTicker> ticker_;  // started when a bar is first shown
};

// Writes a failed call as a JSON object: code, message, and, if the server gives them, reason and
// retry_after (seconds).
void WriteFailure(const grpc::Status& status, JsonWriter& json);

// Runs a command; returns the exit code.
using Action = std::function<int(Session&)>;

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_SESSION_H_

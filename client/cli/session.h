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
#include "client/cli/line_source.h"
#include "client/connection.h"
#include "client/format/json.h"
#include "client/format/progress.h"

namespace annulus {

// Where a command reads and writes. Tests use string streams.
struct Console {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  // Of the terminal, as wide as its window is now.
  std::function<int()> columns = [] { return 80; };
  // Lets a person edit lines on the terminal. Empty: lines are read from `in` as they are.
  std::function<std::unique_ptr<LineSource>()> edit_lines = nullptr;
};

// Options that every command takes.
struct CommonOptions {
  ConnectionOptions connection;
  bool json = false;
  bool quiet = false;
  std::string profile;            // of the user's configuration
  std::string progress = "auto";  // auto, always or never
  bool dumb_terminal = false;     // lines cannot be redrawn
};

// Value of a variable of the process's environment, if it is set.
using Environment = std::function<std::optional<std::string>(const char*)>;

// What a command works with: the connection, the console and the rules for writing on it.
class Session {
 public:
  // All must outlive the session.
  Session(Console& console, const CommonOptions& options, Connection& connection,
          Cancellation& cancellation);
  // The same server for a part of the work that speaks elsewhere.
  Session(Session& other, Console& console, const CommonOptions& options);

  Console& console() { return console_; }
  const CommonOptions& options() const { return options_; }
  Connection& connection() { return connection_; }
  // Shows progress; on a terminal it goes on by itself between two words of the server.
  ProgressDisplay& progress();
  bool interrupted() const { return cancellation_.cancelled(); }

  // Cancels the calls in flight and all later ones, as an interruption does.
  void CancelCalls() { cancellation_.Cancel(); }

  // Forgets an interruption that ended one of several things, so that the next can go on.
  void ForgetInterruption() { cancellation_.Rearm(); }

  // Writes on standard output at once. Text from a model or a server loses its control characters
  // if that is a terminal.
  void Print(absl::string_view text);

  // The same for lines of words, which a terminal gets wrapped; lines below begin with `indent`
  // blanks.
  void PrintWrapped(absl::string_view text, int indent);

  // Columns that a table may have; 0: any number, as nobody looks at it on a terminal.
  int table_columns() const { return console_.out_is_terminal ? console_.columns() : 0; }

  // Writes on standard error, without control characters, wrapped as by PrintWrapped.
  void Remark(absl::string_view text, int indent);

  // One line on standard error; not with --quiet.
  void Warn(absl::string_view message);

  // Say what went wrong and return the exit code for it. A failed call is one JSON object on
  // standard output too if --json was given, unless `told` that there is one already.
  int Misuse(absl::string_view message);
  int CallFailed(const grpc::Status& status, bool told = false);
  int CannotWrite(absl::string_view what);

  // With --json: a failed call as an object, for one that is said in other words than CallFailed's.
  void PrintFailure(const grpc::Status& status);

  // False once standard output could not be written: nobody gets what is still to come.
  bool CanPrint() const { return !console_.out.fail(); }

  // The exit code after all was printed: 0, or 1 if standard output could not be written.
  int Finish();

 private:
  void Complain(absl::string_view message);

  Console& console_;
  const CommonOptions& options_;
  Connection& connection_;
  Cancellation& cancellation_;
  ProgressDisplay progress_;
  std::optional<ProgressTicker> ticker_;  // once there is something to show on a terminal
};

// A failed call as a JSON object: code, message, reason and retry_after (seconds) if the server
// says.
void WriteFailure(const grpc::Status& status, JsonWriter& json);

// What a command line asks for; returns the exit code.
using Action = std::function<int(Session&)>;

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_SESSION_H_

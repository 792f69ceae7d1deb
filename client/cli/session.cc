#include "client/cli/session.h"

#include "absl/strings/str_cat.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

constexpr int kExitCannotWrite = 1;
constexpr int kComplaintIndent = 2;  // of continuation lines

ProgressDisplay::Mode ModeOf(const CommonOptions& options, const Console& console) {
  if (options.quiet || options.progress == "never") return ProgressDisplay::Mode::kNone;
  const bool redraws = console.err_is_terminal && !options.dumb_terminal;
  return options.progress == "always" || redraws ? ProgressDisplay::Mode::kBar
                                                 : ProgressDisplay::Mode::kLines;
}

}  // namespace

Session::Session(Console& console, const CommonOptions& options, Connection& connection,
                 Cancellation& cancellation)
    : console_(console),
      options_(options),
      connection_(connection),
      cancellation_(cancellation),
      progress_(console.err, ModeOf(options, console), console.columns) {}

ProgressDisplay& Session::progress() {
  if (progress_.mode() == ProgressDisplay::Mode::kBar && !ticker_.has_value()) {
    ticker_.emplace(progress_);
  }
  return progress_;
}

Session::Session(Session& other, Console& console, const CommonOptions& options)
    : Session(console, options, other.connection_, other.cancellation_) {}

void Session::Print(absl::string_view text) {
  if (console_.out_is_terminal) {
    console_.out << WithoutControls(text) << std::flush;
  } else {
    console_.out << text << std::flush;
  }
}

void Session::PrintWrapped(absl::string_view text, int indent) {
  Print(console_.out_is_terminal ? Wrapped(text, console_.columns(), indent) : std::string(text));
}

void Session::Complain(absl::string_view message) {
  progress_.Clear();
  const std::string shown = absl::StrCat("annulus: ", WithoutControls(message));
  console_.err << (console_.err_is_terminal ? Wrapped(shown, console_.columns(), kComplaintIndent)
                                            : shown)
               << std::endl;
}

void Session::Remark(absl::string_view text, int indent) {
  progress_.Clear();
  const std::string shown = WithoutControls(text);
  console_.err << (console_.err_is_terminal ? Wrapped(shown, console_.columns(), indent) : shown)
               << std::flush;
}

void Session::Warn(absl::string_view message) {
  if (!options_.quiet) Complain(message);
}

int Session::Misuse(absl::string_view message) {
  Complain(message);
  return kExitMisuse;
}

int Session::CallFailed(const grpc::Status& status, bool told) {
  if (!told) PrintFailure(status);
  if (interrupted()) {
    Complain("interrupted");
    return kExitInterrupted;
  }
  std::string message = DescribeFailure(status, connection_.server());
  const auto& timeout = options_.connection.timeout;
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && timeout.has_value()) {
    absl::StrAppend(&message, "\n  The call took longer than --timeout ",
                    static_cast<double>(timeout->count()) / 1000, " seconds.");
  }
  Complain(message);
  return ExitCode(status);
}

void Session::PrintFailure(const grpc::Status& status) {
  if (!options_.json) return;
  JsonWriter json;
  json.BeginObject().Key("error");
  WriteFailure(status, json);
  Print(absl::StrCat(json.EndObject().text(), "\n"));
}

void WriteFailure(const grpc::Status& status, JsonWriter& json) {
  json.BeginObject().Key("code").String(CodeName(status.error_code()));
  json.Key("message").String(status.error_message());
  const std::string reason = FailureReason(status);
  if (!reason.empty()) json.Key("reason").String(reason);
  const auto retry = RetryDelay(status);
  if (retry.has_value()) json.Key("retry_after").Double(static_cast<double>(retry->count()) / 1e3);
  json.EndObject();
}

int Session::CannotWrite(absl::string_view what) {
  Complain(absl::StrCat("cannot write ", what));
  return kExitCannotWrite;
}

int Session::Finish() {
  progress_.Clear();
  if (console_.out.flush()) return 0;
  Complain("standard output could not be written");
  return kExitCannotWrite;
}

}  // namespace annulus::client

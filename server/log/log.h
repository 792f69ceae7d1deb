#ifndef ANNULUS_SERVER_LOG_LOG_H_
#define ANNULUS_SERVER_LOG_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"
#include "server/log/log_limiter.h"
#include "server/log/log_writer.h"

namespace annulus::server {

// One field of a log line: a key of letters and underscores, and a number or a short text. Must
// never contain text of a prompt, an answer or a document.
struct LogField {
  template <typename Value>
  LogField(absl::string_view key, const Value& value)
      : key(key), value(absl::AlphaNum(value).Piece()), number(std::is_arithmetic_v<Value>) {}
  // A field that is left out of the line if `value` is empty.
  static LogField IfAny(absl::string_view key, absl::string_view value) {
    LogField field(key, value);
    field.omit = value.empty();
    return field;
  }
  absl::string_view key;
  std::string value;
  bool number = false;
  bool omit = false;
};

// Writes one line per event: "2026-11-21T09:30:00.123Z info request_done id=r-7 code=OK" or
// {"time":"..","level":"info","event":"request_done","id":"r-7","code":"OK"}. Quotes and escapes
// values that are empty or contain spaces, quotes or unprintable bytes, so an event is always
// exactly one line. Callers never wait for the descriptor (see LogWriter). Thread-safe.
class Logger {
 public:
  // Events below `least` are dropped. `descriptor` must stay open.
  explicit Logger(LogLevel least, int descriptor = 2, LogFormat format = LogFormat::kText);
  ~Logger();  // waits a moment for lines that are not written yet

  void SetLevel(LogLevel least) { least_.store(least, std::memory_order_relaxed); }

  void Debug(absl::string_view event, std::initializer_list<LogField> fields = {}) const {
    Write(LogLevel::kDebug, event, fields);
  }
  void Info(absl::string_view event, std::initializer_list<LogField> fields = {}) const {
    Write(LogLevel::kInfo, event, fields);
  }
  void Warning(absl::string_view event, std::initializer_list<LogField> fields = {}) const {
    Write(LogLevel::kWarning, event, fields);
  }
  void Error(absl::string_view event, std::initializer_list<LogField> fields = {}) const {
    Write(LogLevel::kError, event, fields);
  }

  // For events that clients cause. Limits their rate (see LogLimiter), separately for each event,
  // level and tenant. The tenant is the field "tenant", if there is one; it must be the name of a
  // known tenant. After lines were suppressed, the next one that is written ends with
  // "suppressed=N".
  void FromClient(LogLevel level, absl::string_view event,
                  std::initializer_list<LogField> fields) const;

  // For calls that need special permission, allowed or not. Writes the line whatever its rate and
  // the log level. Such a line is lost only if the descriptor does not accept it; dropped() counts
  // it.
  void Audit(absl::string_view event, std::initializer_list<LogField> fields) const;

  // Writes how many lines were suppressed, for each event that has been quiet since
  // (LogLimiter::TakeQuiet). Cheap; call it periodically.
  void SayWhatWasSuppressed() const;

  // Writes why the process ends. In text format the line is written unchanged, without time and
  // level.
  void LastWords(absl::string_view line) const;

  // Blocks until everything logged so far is written or lost, at most for `limit`.
  void Flush(std::chrono::milliseconds limit) const { writer_.Flush(limit); }

  // Lines lost because the descriptor did not accept them.
  uint64_t dropped() const { return writer_.dropped(); }
  // Lines suppressed because of their rate.
  uint64_t suppressed() const { return limiter_.suppressed(); }

 private:
  void Write(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) const;
  void Post(std::string line, uint64_t suppressed) const;

  std::atomic<LogLevel> least_;
  const LogFormat format_;
  mutable LogLimiter limiter_;
  mutable LogWriter writer_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_LOG_LOG_H_

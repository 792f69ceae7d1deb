#ifndef ANNULUS_SERVER_LOG_H_
#define ANNULUS_SERVER_LOG_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"
#include "server/log_limiter.h"
#include "server/log_writer.h"

namespace annulus {

// One fact of an event: a key of letters and underscores, and a number or short text. Never text of
// a prompt, an answer or a document.
struct LogField {
  template <typename Value>
  LogField(absl::string_view key, const Value& value)
      : key(key), value(absl::AlphaNum(value).Piece()), number(std::is_arithmetic_v<Value>) {}
  // Left out of the line if `value` is empty.
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

// Writes one line per event: "2026-11-21T09:30:00.123Z info request_done id=r-7 code=OK", or
// {"time":"..","level":"info","event":"request_done","id":"r-7","code":"OK"}. Values that are empty
// or hold spaces, quotes or unprintable bytes are quoted and escaped, so an event never makes two
// lines. Callers never wait for the descriptor (see LogWriter). Thread-safe.
class Logger {
 public:
  // Events below `least` are dropped. `descriptor` must stay open.
  explicit Logger(LogLevel least, int descriptor = 2, LogFormat format = LogFormat::kText);
  ~Logger();  // waits a moment for what is not written yet

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

  // For events that clients cause, so limited in rate (see LogLimiter), each tenant's for itself if
  // there is a field "tenant". It must be a known one's name. After lines were held back,
  // the next line of that event ends with "suppressed=N".
  void FromClient(LogLevel level, absl::string_view event,
                  std::initializer_list<LogField> fields) const;

  // For who may do what: never held back, whatever its rate and the level. Only a descriptor that
  // takes no more loses such a line, and that is counted.
  void Audit(absl::string_view event, std::initializer_list<LogField> fields) const;

  // Writes a line for each event of which lines were held back and none came since. Cheap; to be
  // called now and then.
  void SayWhatWasSuppressed() const;

  // Why the process ends: as text a line as it is, without time and level.
  void LastWords(absl::string_view line) const;

  // Blocks until everything logged so far is written or lost, at most `limit`.
  void Flush(std::chrono::milliseconds limit) const { writer_.Flush(limit); }

  // Lines lost because the descriptor took no more, and lines held back because of their rate.
  uint64_t dropped() const { return writer_.dropped(); }
  uint64_t suppressed() const { return limiter_.suppressed(); }

 private:
  void Write(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) const;
  void Post(std::string line, uint64_t suppressed) const;

  std::atomic<LogLevel> least_;
  const LogFormat format_;
  mutable LogLimiter limiter_;
  mutable LogWriter writer_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_LOG_H_

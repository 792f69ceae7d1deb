#ifndef ANNULUS_SERVER_LOG_H_
#define ANNULUS_SERVER_LOG_H_

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"

namespace annulus {

// One fact of an event: a key of letters and underscores, and a number or short text. Never text of
// a prompt, an answer or a document.
struct LogField {
  LogField(absl::string_view key, const absl::AlphaNum& value) : key(key), value(value.Piece()) {}
  absl::string_view key;
  std::string value;
};

// Writes one line per event: "2026-11-21T09:30:00.123Z info request_done id=r-7 code=OK". Values
// that are empty or hold spaces, quotes or unprintable bytes are quoted and escaped, so an event
// never makes two lines. Thread-safe; lines do not mix.
class Logger {
 public:
  // Events below `least` are dropped. `descriptor` must stay open.
  explicit Logger(LogLevel least, int descriptor = 2) : least_(least), descriptor_(descriptor) {}

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

 private:
  void Write(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) const;

  const LogLevel least_;
  const int descriptor_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_LOG_H_

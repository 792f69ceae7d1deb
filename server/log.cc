#include "server/log.h"

#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace annulus {
namespace {

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

bool NeedsQuotes(absl::string_view text) {
  if (text.empty()) return true;
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '=') return true;
  }
  return false;
}

}  // namespace

void Logger::Write(LogLevel level, absl::string_view event,
                   std::initializer_list<LogField> fields) const {
  if (level < least_) return;
  std::string line = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  absl::StrAppend(&line, " ", LevelName(level), " ", event);
  for (const LogField& field : fields) {
    absl::StrAppend(&line, " ", field.key, "=");
    if (NeedsQuotes(field.value)) {
      absl::StrAppend(&line, "\"", absl::CHexEscape(field.value), "\"");
    } else {
      absl::StrAppend(&line, field.value);
    }
  }
  line.push_back('\n');
  // One call per line keeps lines of several threads apart. A lost line must not stop the server.
  [[maybe_unused]] const ssize_t written = write(descriptor_, line.data(), line.size());
}

}  // namespace annulus

#include "server/log.h"

#include <utility>

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

std::string Line(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields) {
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
  return line;
}

std::string GapLine(uint64_t dropped) {
  return absl::StrCat(Line(LogLevel::kWarning, "log_lines_dropped", {{"lines", dropped}}), "\n");
}

}  // namespace

Logger::Logger(LogLevel least, int descriptor) : least_(least), writer_(descriptor, GapLine) {}

Logger::~Logger() {
  for (const auto& [event, lines] : limiter_.TakeQuiet(LogLimiter::Time::max())) {
    Info("suppressed", {{"of", event}, {"lines", lines}});
  }
}

void Logger::FromClient(LogLevel level, absl::string_view event,
                        std::initializer_list<LogField> fields) const {
  if (level < least_) return;
  // Errors of ours are not held back by how often clients err.
  const std::string kind = absl::StrCat(LevelName(level), ":", event);
  const LogLimiter::Verdict verdict = limiter_.Ask(kind, std::chrono::steady_clock::now());
  if (verdict.write) Write(level, event, fields, verdict.suppressed);
}

void Logger::SayWhatWasSuppressed() const {
  for (const auto& [kind, lines] : limiter_.TakeQuiet(std::chrono::steady_clock::now())) {
    Info("suppressed", {{"of", kind}, {"lines", lines}});
  }
}

void Logger::Write(LogLevel level, absl::string_view event, std::initializer_list<LogField> fields,
                   uint64_t suppressed) const {
  if (level < least_) return;
  std::string line = Line(level, event, fields);
  if (suppressed > 0) absl::StrAppend(&line, " suppressed=", suppressed);
  line.push_back('\n');
  writer_.Post(std::move(line));
}

}  // namespace annulus

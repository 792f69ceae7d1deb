#include "server/log/log.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace annulus::server {
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

// Between double quotes an apostrophe stays as it is.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(absl::CHexEscape(text), {{"\\'", "'"}});
}

std::string TextLine(absl::string_view time, LogLevel level, absl::string_view event,
                     std::initializer_list<LogField> fields) {
  std::string line = absl::StrCat(time, " ", LevelName(level), " ", event);
  for (const LogField& field : fields) {
    if (field.omit) continue;
    absl::StrAppend(&line, " ", field.key, "=");
    if (NeedsQuotes(field.value)) {
      absl::StrAppend(&line, "\"", Escaped(field.value), "\"");
    } else {
      absl::StrAppend(&line, field.value);
    }
  }
  return line;
}

// Appends a JSON string. Escapes every byte that is not printable ASCII, so that any text gives a
// valid line.
void AppendJsonText(absl::string_view text, std::string& line) {
  line.push_back('"');
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < ' ' || byte > '~') {
      absl::StrAppendFormat(&line, "\\u%04x", static_cast<unsigned>(byte));
    } else {
      if (c == '"' || c == '\\') line.push_back('\\');
      line.push_back(c);
    }
  }
  line.push_back('"');
}

void AppendJsonField(absl::string_view key, absl::string_view value, std::string& line) {
  line.push_back(line.empty() ? '{' : ',');
  AppendJsonText(key, line);
  line.push_back(':');
  AppendJsonText(value, line);
}

// JSON has no infinity and no NaN.
bool IsJsonNumber(const LogField& field) {
  return field.number && field.value.find_first_of("in") == std::string::npos;
}

std::string JsonLine(absl::string_view time, LogLevel level, absl::string_view event,
                     std::initializer_list<LogField> fields) {
  std::string line;
  AppendJsonField("time", time, line);
  AppendJsonField("level", LevelName(level), line);
  AppendJsonField("event", event, line);
  for (const LogField& field : fields) {
    if (field.omit) continue;
    if (IsJsonNumber(field)) {
      absl::StrAppend(&line, ",\"", field.key, "\":", field.value);
    } else {
      AppendJsonField(field.key, field.value, line);
    }
  }
  return line + "}";
}

std::string Line(LogFormat format, LogLevel level, absl::string_view event,
                 std::initializer_list<LogField> fields) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
  return format == LogFormat::kJson ? JsonLine(time, level, event, fields)
                                    : TextLine(time, level, event, fields);
}

}  // namespace

Logger::Logger(LogLevel least, int descriptor, LogFormat format)
    : least_(least), format_(format), writer_(descriptor, [format](uint64_t dropped) {
        return absl::StrCat(
            Line(format, LogLevel::kWarning, "log_lines_dropped", {{"lines", dropped}}), "\n");
      }) {}

Logger::~Logger() {
  for (const auto& [event, lines] : limiter_.TakeQuiet(LogLimiter::Time::max())) {
    Info("suppressed", {{"of", event}, {"lines", lines}});
  }
}

void Logger::FromClient(LogLevel level, absl::string_view event,
                        std::initializer_list<LogField> fields) const {
  if (level < least_.load(std::memory_order_relaxed)) return;
  // Limit each level and each tenant separately: neither clients' errors nor another tenant's lines
  // may hold a line back.
  std::string kind = absl::StrCat(LevelName(level), ":", event);
  for (const LogField& field : fields) {
    if (field.key == "tenant" && !field.omit) absl::StrAppend(&kind, ":", field.value);
  }
  const LogLimiter::Verdict verdict = limiter_.Ask(kind, std::chrono::steady_clock::now());
  if (verdict.write) Post(Line(format_, level, event, fields), verdict.suppressed);
}

void Logger::Audit(absl::string_view event, std::initializer_list<LogField> fields) const {
  Post(Line(format_, LogLevel::kInfo, event, fields), 0);
}

void Logger::SayWhatWasSuppressed() const {
  for (const auto& [kind, lines] : limiter_.TakeQuiet(std::chrono::steady_clock::now())) {
    Info("suppressed", {{"of", kind}, {"lines", lines}});
  }
}

void Logger::Write(LogLevel level, absl::string_view event,
                   std::initializer_list<LogField> fields) const {
  if (level < least_.load(std::memory_order_relaxed)) return;
  Post(Line(format_, level, event, fields), 0);
}

void Logger::Post(std::string line, uint64_t suppressed) const {
  if (suppressed > 0) {
    if (format_ == LogFormat::kJson) line.pop_back();
    absl::StrAppend(&line,
                    format_ == LogFormat::kJson ? ",\"suppressed\":" : " suppressed=", suppressed,
                    format_ == LogFormat::kJson ? "}" : "");
  }
  line.push_back('\n');
  writer_.Post(std::move(line));
}

void Logger::LastWords(absl::string_view line) const {
  if (format_ == LogFormat::kJson) return Error("ended", {{"reason", line}});
  writer_.Post(absl::StrCat(line, "\n"));
}

}  // namespace annulus::server

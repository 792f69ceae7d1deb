#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_EVENTS_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_EVENTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/http/json/json_survey.h"

namespace annulus::server {

// Receives the values of a JSON text in their order. A function that returns false ends the
// parsing. Texts are valid UTF-8, and only valid during the call.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;
  virtual bool Null() = 0;
  virtual bool Bool(bool value) = 0;
  virtual bool Integer(int64_t value) = 0;  // with a minus sign
  virtual bool Natural(uint64_t value) = 0;
  // A number with a fraction or exponent, or one that fits no integer; finite. `text` is how it is
  // written.
  virtual bool Real(double value, absl::string_view text) = 0;
  virtual bool String(std::string& value) = 0;  // which may be moved from
  virtual bool Key(absl::string_view name) = 0;
  virtual bool StartObject() = 0;
  virtual bool EndObject() = 0;
  virtual bool StartArray() = 0;
  virtual bool EndArray() = 0;
};

// How parsing ended. `error_byte`: the text is not valid, which shows at this byte; the first is 1.
struct JsonEnding {
  bool complete;  // false also if `events` ended it, or if it was cancelled
  std::optional<size_t> error_byte;
};

// Parses a text that SurveyJson has accepted: one JSON value in UTF-8, with nothing behind it but
// white space, by the grammar of RFC 8259. As nlohmann's parser does, it ignores a byte order mark
// at the start, and takes a NUL byte between values for the end. Numbers beyond a double's range
// are an error. Allocates survey.longest_string bytes, again if they are moved from, and a bit for
// each level of nesting.
JsonEnding ParseJsonEvents(const std::deque<std::string>& pieces, const JsonSurvey& survey,
                           const CancelFlag& cancel, JsonEvents& events);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_EVENTS_H_

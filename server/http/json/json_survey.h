#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_SURVEY_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_SURVEY_H_

#include <cstddef>
#include <deque>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus::server {

// What a JSON text asks of its parser, found without parsing it.
struct JsonSurvey {
  // No string has more bytes once it is decoded, and no number or word. That of the longest string
  // itself, unless it has escapes with digits.
  size_t longest_string;
};

// Longest number or word; longer ones are no use to anybody, and take long to convert.
inline constexpr size_t kLongestJsonWord = 1024;

// INVALID_ARGUMENT if the text has a longer number or word; CANCELLED.
absl::StatusOr<JsonSurvey> SurveyJson(const std::deque<std::string>& pieces,
                                      const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_SURVEY_H_

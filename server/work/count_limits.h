#ifndef ANNULUS_SERVER_WORK_COUNT_LIMITS_H_
#define ANNULUS_SERVER_WORK_COUNT_LIMITS_H_

#include "absl/strings/string_view.h"

namespace annulus::server {

// The most entries that repeated fields may have. Checked before a message is decoded.
inline constexpr int kMostMessages = 10'000;
inline constexpr int kMostDocuments = 64;
inline constexpr int kMostStops = 16;
inline constexpr int kMostStopTokenIds = 1024;
inline constexpr int kMostBiases = 1024;
inline constexpr int kMostQuestions = 1000;
inline constexpr int kMostChoices = 10'000;

struct CountLimit {
  absl::string_view field;  // full name of the field
  int most;
  absl::string_view noun;     // what the entries are, for errors: "messages"
  absl::string_view allowed;  // the allowed number, for errors: "1 to 10000"
};

// Returns the limit of a repeated field; null if only memory limits it.
const CountLimit* FindCountLimit(absl::string_view field);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_COUNT_LIMITS_H_

#ifndef ANNULUS_SERVER_COUNT_LIMITS_H_
#define ANNULUS_SERVER_COUNT_LIMITS_H_

#include "absl/strings/string_view.h"

namespace annulus {

// Most entries of repeated fields, checked before a message is decoded.
inline constexpr int kMostMessages = 10'000;
inline constexpr int kMostDocuments = 64;
inline constexpr int kMostStops = 16;
inline constexpr int kMostStopTokenIds = 1024;
inline constexpr int kMostBiases = 1024;
inline constexpr int kMostQuestions = 1000;

struct CountLimit {
  absl::string_view field;  // full name
  int most;
  absl::string_view noun;     // of the entries: "messages"
  absl::string_view allowed;  // for people: "1 to 10000"
};

// The limit of a repeated field; null where only memory limits it.
const CountLimit* FindCountLimit(absl::string_view field);

}  // namespace annulus

#endif  // ANNULUS_SERVER_COUNT_LIMITS_H_

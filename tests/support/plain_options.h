#ifndef ANNULUS_TESTS_SUPPORT_PLAIN_OPTIONS_H_
#define ANNULUS_TESTS_SUPPORT_PLAIN_OPTIONS_H_

#include <chrono>

#include "engine/api/options.h"

namespace annulus::testing {

// Options under which nothing that a test counts depends on the machine's speed: chunks are as
// large as chunk_tokens, nothing is guessed, and a rank on a busy machine is not mistaken for a
// hung one.
inline EngineOptions PlainOptions() {
  EngineOptions options;
  options.stall_budget = std::chrono::milliseconds(0);
  options.speculation = Speculation::kOff;
  options.exchange_timeout = std::chrono::minutes(10);
  return options;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_PLAIN_OPTIONS_H_

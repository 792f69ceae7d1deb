#ifndef ANNULUS_ENGINE_PROMPT_CALL_ARGUMENTS_H_
#define ANNULUS_ENGINE_PROMPT_CALL_ARGUMENTS_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/work_meter.h"

namespace annulus {

// Upper bound of the heap bytes that WithArguments takes for calls of `bytes` bytes.
constexpr size_t WithArgumentsBytes(size_t bytes) { return 16 * bytes; }

// Rewrites the member function.arguments of each call in `calls`, a JSON array: with `as_text`, an
// object becomes a text of JSON; without, a text that is a JSON object becomes that object. All
// other bytes stay as they are, so numbers of any size and repeated names do; and so does what is
// not JSON, or looks like no call. Takes linear time, and a bit of memory for each level of
// nesting, however deep: later readers must limit that. CANCELLED if the flag is set.
absl::StatusOr<std::string> WithArguments(const std::string& calls, bool as_text,
                                          const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_CALL_ARGUMENTS_H_

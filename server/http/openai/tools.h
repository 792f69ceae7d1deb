#ifndef ANNULUS_SERVER_HTTP_OPENAI_TOOLS_H_
#define ANNULUS_SERVER_HTTP_OPENAI_TOOLS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/http/json/json_reader.h"

namespace annulus::server {

// Checks a request's "tools", a JSON value, and stores them if there are any. INVALID_ARGUMENT, in
// a few cases with the field, if they are no array, or if one is no function.
absl::Status SetTools(absl::string_view json, v1::GenerationSpec& spec);

// Upper bound of the memory that SetNamedTool takes for each byte.
inline constexpr size_t kToolChoiceFactor = 72;

// Stores "tool_choice": a word, or a JSON object that names the only function to call, as chat
// ({"type": "function", "function": {"name": ..}}) or Responses ({.., "name": ..}) has it.
absl::Status SetToolChoice(v1::GenerationSpec& spec, const JsonValue& value);
absl::Status SetParallelCalls(v1::GenerationSpec& spec, const JsonValue& value);

// The value of "tool_calls" in a chunk, and in a whole answer.
std::string ToolCallsJson(const std::vector<ToolCallDelta>& calls);
std::string ToolCallsJson(const std::vector<ToolCall>& calls);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_TOOLS_H_

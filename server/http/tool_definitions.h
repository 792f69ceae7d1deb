#ifndef ANNULUS_SERVER_HTTP_TOOL_DEFINITIONS_H_
#define ANNULUS_SERVER_HTTP_TOOL_DEFINITIONS_H_

#include <cstddef>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::server {

// Upper bound of the memory that SetFlatTools takes for each byte of the definitions.
inline constexpr size_t kToolsFactor = 16;

// Stores definitions of tools as chat templates know them: {"type": "function", "function":
// {"name", "description", "parameters", "strict"}}. `json`: an array of objects with these members,
// the parameters' name being `schema`, as ReadJson captures it. Takes linear time. `takes`: whether
// a tool of this type, empty if it says none, is a function, or is to be left out; an error refuses
// it. INVALID_ARGUMENT names the field.
absl::Status SetFlatTools(absl::string_view json, absl::string_view schema,
                          absl::FunctionRef<absl::StatusOr<bool>(absl::string_view type)> takes,
                          v1::GenerationSpec& spec);

// Adds a call to the message. `arguments`: a JSON object, as text.
void AddToolCall(absl::string_view id, absl::string_view name, absl::string_view arguments,
                 v1::Message& message);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_TOOL_DEFINITIONS_H_

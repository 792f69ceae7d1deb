#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// The value of a JSON text, members in their order; of members with the same name the last counts.
// Fails for what is not JSON, integers beyond 64 bits and nesting beyond kMaxValueDepth.
Value ParseJson(Runtime& runtime, absl::string_view json);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_

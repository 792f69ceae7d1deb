#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// Parses JSON. Keeps the order of members; for duplicate names the last one wins. Fails for invalid
// JSON, integers beyond 64 bits, and nesting deeper than kMaxValueDepth.
Value ParseJson(Runtime& runtime, absl::string_view json);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_JSON_VALUE_H_

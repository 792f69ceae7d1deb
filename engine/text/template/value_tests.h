#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_TESTS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_TESTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// What may follow `is`; nothing if it is not supported. Its result is a boolean.
Builtin FindTest(absl::string_view name);
// The same; fails if it is not supported, with those that are.
Builtin RequireTest(absl::string_view name);
// "boolean, callable, ..", for messages.
std::string TestNames();

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_VALUE_TESTS_H_

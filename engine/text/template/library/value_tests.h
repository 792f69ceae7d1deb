#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_VALUE_TESTS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_VALUE_TESTS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// The test with that name (after `is`); null if unsupported. Returns a boolean.
Builtin FindTest(absl::string_view name);
// The same, but throws Failure, listing the supported tests, if unsupported.
Builtin RequireTest(absl::string_view name);
// For messages: "boolean, callable, ..".
std::string TestNames();

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_VALUE_TESTS_H_

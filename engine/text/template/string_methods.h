#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_STRING_METHODS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_STRING_METHODS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// A method of Python's str; nothing if str has none of that name. One that str has and this
// implementation lacks fails when it is called, with its name.
Builtin FindStringMethod(absl::string_view name);
// "capitalize, center, ..": those that are supported.
std::string StringMethodNames();

// str.replace; `count` below 0: all.
Value ReplaceText(Runtime& runtime, absl::string_view text, absl::string_view old_text,
                  absl::string_view new_text, int64_t count);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_STRING_METHODS_H_

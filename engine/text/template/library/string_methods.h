#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_STRING_METHODS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_STRING_METHODS_H_

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// A method of Python's str; null if str has no method of that name. A method that this
// implementation lacks fails, with its name, when called.
Builtin FindStringMethod(absl::string_view name);

// str.replace; a negative `count` means all.
Value ReplaceText(Runtime& runtime, absl::string_view text, absl::string_view old_text,
                  absl::string_view new_text, int64_t count);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_STRING_METHODS_H_

#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_GLOBALS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_GLOBALS_H_

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// The global function with that name: range, dict, namespace, raise_exception or strftime_now. Null
// for other names.
Builtin FindGlobal(absl::string_view name);

// Sets an attribute of a namespace; fails for names that begin with an underscore.
void SetAttribute(Runtime& runtime, NamespaceData& ns, absl::string_view name, const Value& value);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_GLOBALS_H_

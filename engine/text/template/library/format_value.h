#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_VALUE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_VALUE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

namespace annulus::jinja {

// Python's str(): strings stay as they are, undefined is empty. Fails for values that Python would
// show with their address: functions, iterators, the loop, and namespaces.
std::string Str(Runtime& runtime, const Value& value);

// Python's repr(): like Str, but strings are quoted.
std::string Repr(Runtime& runtime, const Value& value);

// The shortest text that reads back as the same float: "0.1", "1e+16", "inf".
std::string FloatText(double value);

// The arguments of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // for one level; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// json.dumps(value). Fails for values that JSON cannot represent, and if the text exceeds the limit
// on bytes.
std::string ToJson(Runtime& runtime, const Value& value, const JsonStyle& style);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FORMAT_VALUE_H_

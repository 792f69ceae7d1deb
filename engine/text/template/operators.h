#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_OPERATORS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_OPERATORS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

// Python's operators. Integers are 64-bit: a result beyond that fails, where Python goes on with
// larger ones.

namespace annulus::jinja {

// + - * / // % **
Value Arithmetic(Runtime& runtime, absl::string_view op, const Value& left, const Value& right);
Value Negate(const Value& value);
Value Positive(const Value& value);

// == != < <= > >= in "not in"
bool Compare(Runtime& runtime, absl::string_view op, const Value& left, const Value& right);

// left < right, for sorting: the same as Less, with its steps counted.
bool CountedLess(Runtime& runtime, const Value& left, const Value& right);

// `item in container`.
bool Contains(Runtime& runtime, const Value& container, const Value& item);

// container[key], as jinja2 looks it up: where there is no such element, the attribute of that
// name; where there is none either, undefined.
Value Subscript(Runtime& runtime, const Value& container, const Value& key);

// container[begin:end:step]; none where left out.
Value Slice(Runtime& runtime, const Value& container, const Value& begin, const Value& end,
            const Value& step);

// value.name, as jinja2 looks it up: a method of that name, else the element. Methods that would
// change the value, and names that begin with two underscores, are undefined.
Value Attribute(Runtime& runtime, const Value& value, absl::string_view name);

// The number of elements, characters or members.
int64_t Length(Runtime& runtime, const Value& value);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_OPERATORS_H_

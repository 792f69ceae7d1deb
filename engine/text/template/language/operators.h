#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_OPERATORS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_OPERATORS_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

// Python's operators. Integers have 64 bits: a larger result fails, unlike in Python.

namespace annulus::jinja {

// + - * / // % **
Value Arithmetic(Runtime& runtime, absl::string_view op, const Value& left, const Value& right);
Value Negate(const Value& value);
Value Positive(const Value& value);

// == != < <= > >= in "not in"
bool Compare(Runtime& runtime, absl::string_view op, const Value& left, const Value& right);

// left < right, for sorting: like Less, but counts steps.
bool CountedLess(Runtime& runtime, const Value& left, const Value& right);

// `item in container`.
bool Contains(Runtime& runtime, const Value& container, const Value& item);

// container[key] with jinja2's lookup: the element; if there is none, the attribute of that name;
// otherwise undefined.
Value Subscript(Runtime& runtime, const Value& container, const Value& key);

// container[begin:end:step]; none means omitted.
Value Slice(Runtime& runtime, const Value& container, const Value& begin, const Value& end,
            const Value& step);

// value.name with jinja2's lookup: the method of that name, otherwise the element. Methods that
// would modify the value, and names that begin with two underscores, are undefined.
Value Attribute(Runtime& runtime, const Value& value, absl::string_view name);

// Number of elements, characters or members.
int64_t Length(Runtime& runtime, const Value& value);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_OPERATORS_H_

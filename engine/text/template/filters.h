#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_FILTERS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_FILTERS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// The filter of that name; nothing if it is not supported. What jinja2 computes lazily (map, select
// and their like) is computed at once, and can be read once, as there.
Builtin FindFilter(absl::string_view name);
// The same; fails if it is not supported, with those that are.
Builtin RequireFilter(absl::string_view name);
// "abs, attr, batch, ..", for messages.
std::string FilterNames();

// What filters.cc puts together: filters of text and numbers, and filters of sequences.
Builtin FindTextFilter(absl::string_view name);
std::string TextFilterNames();
Builtin FindSequenceFilter(absl::string_view name);
std::string SequenceFilterNames();

// A table of named functions.
struct NamedBuiltin {
  absl::string_view name;
  Builtin builtin;
};

template <typename Table>
Builtin FindBuiltin(const Table& table, absl::string_view name) {
  for (const NamedBuiltin& entry : table) {
    if (entry.name == name) return entry.builtin;
  }
  return nullptr;
}

template <typename Table>
std::string BuiltinNames(const Table& table) {
  std::string names;
  for (const NamedBuiltin& entry : table) {
    if (!names.empty()) names += ", ";
    names.append(entry.name.data(), entry.name.size());
  }
  return names;
}

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_FILTERS_H_

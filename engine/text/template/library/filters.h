#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FILTERS_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FILTERS_H_

#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/template/runtime.h"

namespace annulus::jinja {

// The filter with that name; null if unsupported. Filters that are lazy in jinja2 (map, select, ..)
// are computed immediately; as there, their results can be read once.
Builtin FindFilter(absl::string_view name);
// The same, but throws Failure, listing the supported filters, if unsupported.
Builtin RequireFilter(absl::string_view name);
// For messages: "abs, attr, batch, ..".
std::string FilterNames();

// The two tables that filters.cc combines: filters of text and numbers, and filters of sequences.
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

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_FILTERS_H_

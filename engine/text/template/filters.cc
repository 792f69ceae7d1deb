#include "engine/text/template/filters.h"

#include "absl/strings/str_cat.h"

namespace annulus::jinja {

Builtin FindFilter(absl::string_view name) {
  const Builtin filter = FindTextFilter(name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

std::string FilterNames() { return absl::StrCat(TextFilterNames(), ", ", SequenceFilterNames()); }

}  // namespace annulus::jinja

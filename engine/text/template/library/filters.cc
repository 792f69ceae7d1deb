#include "engine/text/template/library/filters.h"

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"

namespace annulus::jinja {

Builtin FindFilter(absl::string_view name) {
  const Builtin filter = FindTextFilter(name);
  return filter != nullptr ? filter : FindSequenceFilter(name);
}

Builtin RequireFilter(absl::string_view name) {
  const Builtin filter = FindFilter(name);
  if (filter == nullptr) {
    Fail("the filter '", name, "' is not supported; supported are ", FilterNames());
  }
  return filter;
}

std::string FilterNames() { return absl::StrCat(TextFilterNames(), ", ", SequenceFilterNames()); }

}  // namespace annulus::jinja

#include "server/identity/roles.h"

#include "absl/strings/str_cat.h"
#include "server/config/value_parsers.h"

namespace annulus::server {
namespace {

const NamedValues<Role>& RoleNames() {
  static const NamedValues<Role> kNames = {{"generate", Role::kGenerate},
                                           {"documents", Role::kDocuments},
                                           {"admin", Role::kAdmin},
                                           {"metrics", Role::kMetrics}};
  return kNames;
}

}  // namespace

absl::StatusOr<Role> ParseRole(absl::string_view name) { return ParseChoice(name, RoleNames()); }

std::string RolesText(Roles roles, absl::string_view between) {
  std::string text;
  for (const auto& [name, role] : RoleNames()) {
    if (roles.Has(role)) absl::StrAppend(&text, text.empty() ? "" : between, name);
  }
  return text.empty() ? "none" : text;
}

}  // namespace annulus::server

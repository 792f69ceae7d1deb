#include "engine/base/tenant_id.h"

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

constexpr size_t kLongestTenantName = 64;

}  // namespace

absl::StatusOr<TenantId> TenantId::FromName(absl::string_view name) {
  bool allowed = !name.empty() && name.size() <= kLongestTenantName;
  for (const char c : name.substr(0, kLongestTenantName)) {
    allowed = allowed && (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-');
  }
  if (allowed) return TenantId(name);
  return absl::InvalidArgumentError(
      absl::StrCat("the tenant name \"", absl::CHexEscape(name.substr(0, kLongestTenantName)),
                   "\" is not allowed: 1 to 64 ASCII letters, digits, '.', '_' and '-'"));
}

}  // namespace annulus

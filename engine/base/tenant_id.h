#ifndef ANNULUS_ENGINE_BASE_TENANT_ID_H_
#define ANNULUS_ENGINE_BASE_TENANT_ID_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The tenant that requests, documents and cached pages belong to. Nothing of one tenant is ever
// shown to another or reused for it, not even as a count of cached tokens. The server takes it from
// the authenticated identity of a call, never from the request itself. A default-constructed one is
// the tenant `default`, of callers without an identity.
class TenantId {
 public:
  TenantId() : name_("default") {}

  // INVALID_ARGUMENT unless `name` is 1 to 64 of [A-Za-z0-9._-]. So a name never contains "/",
  // which separates it from the next part in the identity of keys and values.
  static absl::StatusOr<TenantId> FromName(absl::string_view name);

  const std::string& name() const { return name_; }

  friend bool operator==(const TenantId&, const TenantId&) = default;
  friend auto operator<=>(const TenantId&, const TenantId&) = default;

 private:
  explicit TenantId(absl::string_view name) : name_(name) {}

  std::string name_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_TENANT_ID_H_

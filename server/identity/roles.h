#ifndef ANNULUS_SERVER_IDENTITY_ROLES_H_
#define ANNULUS_SERVER_IDENTITY_ROLES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// A permission of a caller.
enum class Role : uint8_t {
  kGenerate,   // generate, prefill, plan, tokenize, apply templates, draw attention maps
  kDocuments,  // upload, list, unpin and delete the tenant's documents
  kAdmin,      // drain the server, read its load
  kMetrics,    // read load and metrics, of all tenants together
};

// A set of roles.
class Roles {
 public:
  constexpr Roles() = default;
  constexpr Roles(std::initializer_list<Role> roles) {
    for (const Role role : roles) Add(role);
  }
  constexpr void Add(Role role) { bits_ |= Bit(role); }
  constexpr bool Has(Role role) const { return (bits_ & Bit(role)) != 0; }
  constexpr bool HasAnyOf(Roles others) const { return (bits_ & others.bits_) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  friend constexpr bool operator==(Roles, Roles) = default;

 private:
  static constexpr uint32_t Bit(Role role) { return uint32_t{1} << static_cast<uint32_t>(role); }
  uint32_t bits_ = 0;
};

// The roles of callers if there is no tokens file: all except kAdmin.
inline constexpr Roles kOrdinaryRoles = {Role::kGenerate, Role::kDocuments, Role::kMetrics};

// INVALID_ARGUMENT lists the names of all roles.
absl::StatusOr<Role> ParseRole(absl::string_view name);

// Joins the names of roles with `between`, in the order of the enumeration: "generate or
// documents". "none" if empty.
std::string RolesText(Roles roles, absl::string_view between);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_ROLES_H_

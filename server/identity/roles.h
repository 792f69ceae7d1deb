#ifndef ANNULUS_SERVER_IDENTITY_ROLES_H_
#define ANNULUS_SERVER_IDENTITY_ROLES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What a caller may do.
enum class Role : uint8_t {
  kGenerate,   // answers, tokens, templates, maps of attention
  kDocuments,  // uploads, lists and deletes the tenant's documents
  kAdmin,      // drains the server
  kMetrics,    // reads load and metrics, of all tenants together
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

// Of callers that no tokens file names: everything but what is the administrator's.
inline constexpr Roles kOrdinaryRoles = {Role::kGenerate, Role::kDocuments, Role::kMetrics};

// INVALID_ARGUMENT lists the names that there are.
absl::StatusOr<Role> ParseRole(absl::string_view name);

// "generate or documents", in the order of the enumeration; "none" if empty.
std::string RolesText(Roles roles, absl::string_view between);

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_ROLES_H_

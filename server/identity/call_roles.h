#ifndef ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_
#define ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "server/identity/roles.h"

namespace annulus::server {

// Returns the roles for a method: a caller must have one of them. Empty: every known caller may
// call it. A method that is missing in the table needs the role admin, so that a new method is
// closed until somebody adds it.
Roles RolesFor(absl::string_view method);

// Names of all methods with a row.
std::vector<absl::string_view> AllMethods();

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_

#ifndef ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_
#define ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "server/identity/roles.h"

namespace annulus {

// The roles of which a caller of this method must have one; empty: every caller that the server
// knows may call it. A method without a row is for administrators, so that a new one is closed
// until somebody decides.
Roles RolesFor(absl::string_view method);

// Whether the table has a row for the method.
bool HasRolesRow(absl::string_view method);

// Names of all methods with a row.
std::vector<absl::string_view> AllMethods();

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_CALL_ROLES_H_

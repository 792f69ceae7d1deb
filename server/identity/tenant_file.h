#ifndef ANNULUS_SERVER_IDENTITY_TENANT_FILE_H_
#define ANNULUS_SERVER_IDENTITY_TENANT_FILE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/identity/roles.h"
#include "server/identity/token_hash.h"

namespace annulus::server {

// What all callers of a tenant together may use. 0: no limit except the server's.
struct Quotas {
  int64_t requests_per_minute = 0;  // generations started
  int64_t tokens_per_minute = 0;    // tokens of prompts and answers
  int64_t running_requests = 0;     // generations at a time
  int64_t documents = 0;            // documents stored or being uploaded
  int64_t document_bytes = 0;       // bytes of their texts
  TenantRoom room = {};             // bytes of keys and values in memory and on disk
};

// The caller of a call: its tenant, and what it may do.
struct Caller {
  TenantId tenant;
  Roles roles = kOrdinaryRoles;
  Quotas quotas;
};

// The content of --tokens-file: the caller for each token hash and each certificate name.
struct TenantFile {
  std::vector<std::pair<TokenHash, Caller>> tokens;
  std::vector<std::pair<std::string, Caller>> certificates;
};

// Parses the YAML text of a tokens file; `path` names it in errors. INVALID_ARGUMENT, with the
// line, if it does not have this form (quotas, and every single one of them, are optional):
//
//   tenants:
//     - name: acme
//       quotas:
//         requests_per_minute: 600
//         tokens_per_minute: 200000
//         running_requests: 8
//         documents: 100
//         document_bytes: 1GiB
//         kv_bytes: 4GiB
//         host_bytes: 8GiB
//         disk_bytes: 20GiB
//       callers:
//         - token: sha256:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
//           roles: [generate, documents]
//         - certificate: search.acme.example
//           roles: [generate]
absl::StatusOr<TenantFile> ParseTenantFile(const std::string& path, const std::string& text);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_TENANT_FILE_H_

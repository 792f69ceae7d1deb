#ifndef ANNULUS_SERVER_IDENTITY_CREDENTIALS_H_
#define ANNULUS_SERVER_IDENTITY_CREDENTIALS_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/config/server_config.h"
#include "server/identity/tenant_file.h"

namespace annulus::server {

// The tokens and certificate names in --auth-token-file, --admin-token-file and --tokens-file.
// Thread-safe.
class Credentials {
 public:
  // Reads the files that `config` names. NOT_FOUND or INVALID_ARGUMENT if one cannot be read or is
  // malformed, or if the tokens file's mode lets other users read or change it.
  static absl::StatusOr<std::unique_ptr<Credentials>> Open(const ServerConfig& config);

  // Reads the files again. If a file is broken, keeps what was read from it before, and the error
  // names it. The other files take effect all the same, so that a token removed from one of them is
  // no longer valid.
  absl::Status Reload();

  // Whether callers need no identity: neither a token file nor a tokens file is set.
  bool open_to_all() const { return auth_file_.empty() && tokens_file_.empty(); }
  // Whether callers have the roles that a tokens file gives them.
  bool has_roles() const { return !tokens_file_.empty(); }
  // The number of tenants of which a caller has the role documents, at least 1.
  size_t document_tenants() const;
  bool has_admin_token() const { return !admin_file_.empty(); }

  // Finds the caller that sends `authorization`, the value of that header: "Bearer TOKEN". Takes
  // equally long for known and unknown tokens.
  std::optional<Caller> FindToken(absl::string_view authorization) const;
  // Finds the caller whose certificate has one of these names, according to the tokens file.
  std::optional<Caller> FindCertificate(const std::vector<std::string>& names) const;
  // Whether `authorization` carries the token of --admin-token-file.
  bool IsAdminToken(absl::string_view authorization) const;

 private:
  struct Table {
    TenantFile callers;
    std::optional<TokenHash> auth;
    std::optional<TokenHash> admin;
  };
  explicit Credentials(const ServerConfig& config)
      : auth_file_(config.auth_token_file),
        admin_file_(config.admin_token_file),
        tokens_file_(config.tokens_file) {}
  // Reads the files into `table`. Leaves the part of a broken file unchanged, and names it in the
  // error.
  absl::Status Read(Table& table) const;
  std::shared_ptr<const Table> table() const;

  const std::string auth_file_;
  const std::string admin_file_;
  const std::string tokens_file_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;
};

// Returns the first line of the file that `option` names, without surrounding white space.
// NOT_FOUND or INVALID_ARGUMENT if there is no such regular file, or if the line is empty.
absl::StatusOr<std::string> ReadTokenFile(absl::string_view option, const std::string& path);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_CREDENTIALS_H_

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

namespace annulus {

// The tokens that the server knows: of --auth-token-file, --admin-token-file and --tokens-file.
// Reload reads the files again. Thread-safe.
class Credentials {
 public:
  // Reads the files that `config` names. NOT_FOUND, INVALID_ARGUMENT: one cannot be read, is
  // malformed, or is a tokens file that too many may read or write.
  static absl::StatusOr<std::unique_ptr<Credentials>> Open(const ServerConfig& config);

  // The same again. A file that is broken leaves what was read of it before, and the error names
  // it; the others are used all the same, so that it keeps no token valid that was taken out of
  // another.
  absl::Status Reload();

  // Whether callers need no identity: neither a token file nor a tokens file is set.
  bool open_to_all() const { return auth_file_.empty() && tokens_file_.empty(); }
  // Whether callers have the roles that a tokens file gives them.
  bool has_roles() const { return !tokens_file_.empty(); }
  bool has_admin_token() const { return !admin_file_.empty(); }

  // Who sends `authorization`, the value of that header: "Bearer TOKEN". Takes as long for every
  // token, known or not.
  std::optional<Caller> FindToken(absl::string_view authorization) const;
  // Whose certificate carries one of these names. The tokens file says.
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
  // Reads the files into `table`; of a broken one nothing.
  absl::Status Read(Table& table) const;
  std::shared_ptr<const Table> table() const;

  const std::string auth_file_;
  const std::string admin_file_;
  const std::string tokens_file_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;
};

// The first line of the file that `option` names, without white space around it. NOT_FOUND or
// INVALID_ARGUMENT if there is no such regular file, or the line is empty.
absl::StatusOr<std::string> ReadTokenFile(absl::string_view option, const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_CREDENTIALS_H_

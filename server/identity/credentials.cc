#include "server/identity/credentials.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status_macros.h"
#include "server/config/plain_file.h"

namespace annulus::server {
namespace {

constexpr char kTokensOption[] = "tokens-file";
constexpr size_t kLongestTokenFile = 64 << 10;
constexpr size_t kLongestTokensFile = 4 << 20;
// A user who can write the file can add callers, and no other user needs to read the hashes.
constexpr mode_t kForbiddenMode = S_IWGRP | S_IRWXO;

absl::StatusOr<TenantFile> ReadTenantFile(const std::string& path) {
  mode_t mode = 0;
  ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                           ReadPlainFile(kTokensOption, path, kLongestTokensFile, &mode));
  if ((mode & kForbiddenMode) != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: %s has mode %04o, so other users could read or change it; run: chmod 640 %s",
        kTokensOption, path, mode & 07777u, path));
  }
  auto parsed = ParseTenantFile(path, text);
  if (parsed.ok()) return parsed;
  return absl::InvalidArgumentError(absl::StrCat(kTokensOption, ": ", parsed.status().message()));
}

absl::StatusOr<std::optional<TokenHash>> HashOfFile(absl::string_view option,
                                                    const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string token, ReadTokenFile(option, path));
  return TokenHash::Of(token);
}

// Reads one file, if it is configured, into its part. On failure leaves the part as it is and adds
// the error to `status`.
template <typename Part, typename Read>
void ReadInto(Part& part, const std::string& path, const Read& read, absl::Status& status) {
  if (path.empty()) return;
  absl::StatusOr<Part> found = read();
  if (found.ok()) {
    part = *std::move(found);
  } else if (status.ok()) {
    status = std::move(found).status();
  } else {
    status =
        absl::Status(status.code(), absl::StrCat(status.message(), "; ", found.status().message()));
  }
}

std::optional<TokenHash> HashOfBearer(absl::string_view authorization) {
  constexpr absl::string_view kScheme = "Bearer ";  // in letters of either case (RFC 9110, 11.1)
  if (!absl::StartsWithIgnoreCase(authorization, kScheme)) return std::nullopt;
  authorization.remove_prefix(kScheme.size());
  return TokenHash::Of(authorization);
}

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(absl::string_view option, const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string content,
                           ReadPlainFile(option, path, kLongestTokenFile));
  const absl::string_view line = absl::string_view(content).substr(0, content.find('\n'));
  const absl::string_view token = absl::StripAsciiWhitespace(line);
  if (token.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": the first line of ", path, " is empty; it must hold the token"));
  }
  return std::string(token);
}

absl::StatusOr<std::unique_ptr<Credentials>> Credentials::Open(const ServerConfig& config) {
  std::unique_ptr<Credentials> credentials(new Credentials(config));
  ANNULUS_RETURN_IF_ERROR(credentials->Reload());
  return credentials;
}

absl::Status Credentials::Read(Table& table) const {
  absl::Status status;
  ReadInto(
      table.callers, tokens_file_, [&] { return ReadTenantFile(tokens_file_); }, status);
  ReadInto(
      table.auth, auth_file_, [&] { return HashOfFile("auth-token-file", auth_file_); }, status);
  ReadInto(
      table.admin, admin_file_, [&] { return HashOfFile("admin-token-file", admin_file_); },
      status);
  return status;
}

absl::Status Credentials::Reload() {
  const auto before = table();
  Table read = before == nullptr ? Table() : *before;
  const absl::Status status = Read(read);
  if (before == nullptr && !status.ok()) return status;
  auto shared = std::make_shared<const Table>(std::move(read));
  std::lock_guard lock(mutex_);
  table_ = std::move(shared);
  return status;
}

std::shared_ptr<const Credentials::Table> Credentials::table() const {
  std::lock_guard lock(mutex_);
  return table_;
}

size_t Credentials::document_tenants() const {
  const auto known = table();
  std::set<TenantId> tenants;
  if (!has_roles() || known->auth) tenants.insert(TenantId());
  const auto look_at = [&](const auto& callers) {
    for (const auto& [proof, caller] : callers) {
      if (caller.roles.Has(Role::kDocuments)) tenants.insert(caller.tenant);
    }
  };
  look_at(known->callers.tokens);
  look_at(known->callers.certificates);
  return std::max<size_t>(1, tenants.size());
}

std::optional<Caller> Credentials::FindToken(absl::string_view authorization) const {
  const std::optional<TokenHash> hash = HashOfBearer(authorization);
  if (!hash) return std::nullopt;
  const auto known = table();
  const Caller* found = nullptr;
  for (const auto& [other, caller] : known->callers.tokens) {
    if (other.Is(*hash)) found = &caller;
  }
  if (known->auth && known->auth->Is(*hash)) return Caller();
  if (found == nullptr) return std::nullopt;
  return *found;
}

std::optional<Caller> Credentials::FindCertificate(const std::vector<std::string>& names) const {
  const auto known = table();
  for (const auto& [name, caller] : known->callers.certificates) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return caller;
  }
  return std::nullopt;
}

bool Credentials::IsAdminToken(absl::string_view authorization) const {
  const std::optional<TokenHash> hash = HashOfBearer(authorization);
  const auto known = table();
  return hash && known->admin && known->admin->Is(*hash);
}

}  // namespace annulus::server

#include "server/identity/credentials.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/config/plain_file.h"

namespace annulus {
namespace {

constexpr char kTokensOption[] = "tokens-file";
constexpr size_t kLongestTokenFile = 64 << 10;
constexpr size_t kLongestTokensFile = 4 << 20;
// Whoever writes the file makes callers, and hashes are nobody's business.
constexpr mode_t kForbiddenMode = S_IWGRP | S_IRWXO;

absl::Status CheckMode(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & kForbiddenMode) == 0) {
    return absl::OkStatus();  // what is gone since it was read is told by the next read
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s: %s has mode %04o, so others than its owner could read or change who may call; do: chmod "
      "640 %s",
      kTokensOption, path, status.st_mode & 07777u, path));
}

std::optional<TokenHash> HashOfBearer(absl::string_view authorization) {
  if (!absl::ConsumePrefix(&authorization, "Bearer ")) return std::nullopt;
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

absl::StatusOr<Credentials::Table> Credentials::Read() const {
  Table table;
  if (!tokens_file_.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                             ReadPlainFile(kTokensOption, tokens_file_, kLongestTokensFile));
    ANNULUS_RETURN_IF_ERROR(CheckMode(tokens_file_));
    auto parsed = ParseTenantFile(tokens_file_, text);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kTokensOption, ": ", parsed.status().message()));
    }
    table.callers = *std::move(parsed);
  }
  if (!auth_file_.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string token, ReadTokenFile("auth-token-file", auth_file_));
    table.callers.tokens.emplace_back(TokenHash::Of(token), Caller());
  }
  if (!admin_file_.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string token,
                             ReadTokenFile("admin-token-file", admin_file_));
    table.admin = TokenHash::Of(token);
  }
  return table;
}

absl::Status Credentials::Reload() {
  ANNULUS_ASSIGN_OR_RETURN(Table table, Read());
  auto shared = std::make_shared<const Table>(std::move(table));
  std::lock_guard lock(mutex_);
  table_ = std::move(shared);
  return absl::OkStatus();
}

std::shared_ptr<const Credentials::Table> Credentials::table() const {
  std::lock_guard lock(mutex_);
  return table_;
}

std::optional<Caller> Credentials::FindToken(absl::string_view authorization) const {
  const std::optional<TokenHash> hash = HashOfBearer(authorization);
  if (!hash) return std::nullopt;
  const auto known = table();
  const Caller* found = nullptr;
  for (const auto& [other, caller] : known->callers.tokens) {
    if (other.Is(*hash)) found = &caller;
  }
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

}  // namespace annulus

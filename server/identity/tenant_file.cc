#include "server/identity/tenant_file.h"

#include <yaml-cpp/yaml.h>

#include <limits>
#include <map>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/config/value_parsers.h"

namespace annulus::server {
namespace {

using Fields = std::map<std::string, YAML::Node>;

constexpr int64_t kMostOfAQuota = int64_t{1} << 50;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  absl::StatusOr<TenantFile> Read(const YAML::Node& root) {
    ANNULUS_ASSIGN_OR_RETURN(const Fields fields, ReadFields(root, "the file", {"tenants"}));
    ANNULUS_ASSIGN_OR_RETURN(const YAML::Node tenants, ListOf(root, fields, "tenants"));
    for (const YAML::Node& tenant : tenants) ANNULUS_RETURN_IF_ERROR(ReadTenant(tenant));
    return std::move(file_);
  }

 private:
  absl::Status Fail(const YAML::Node& node, absl::string_view message) const {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, ":", node.Mark().line + 1, ": ", message));
  }

  // Like Fail with the message of `status`; OK if `status` is.
  absl::Status At(const YAML::Node& node, absl::string_view what,
                  const absl::Status& status) const {
    return status.ok() ? status : Fail(node, absl::StrCat(what, ": ", status.message()));
  }

  absl::StatusOr<Fields> ReadFields(const YAML::Node& node, absl::string_view what,
                                    const std::vector<std::string>& known) const {
    if (!node.IsMap()) {
      return Fail(node,
                  absl::StrCat(what, " must be a map with the keys ", absl::StrJoin(known, ", ")));
    }
    Fields fields;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Fail(entry.first, "a key must be a single word");
      const std::string& name = entry.first.Scalar();
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return At(entry.first, what, UnknownChoice(name, known));
      }
      if (!fields.emplace(name, entry.second).second) {
        return Fail(entry.first, absl::StrCat(name, " is given twice"));
      }
    }
    return fields;
  }

  absl::StatusOr<YAML::Node> ListOf(const YAML::Node& parent, const Fields& fields,
                                    const std::string& name) const {
    const auto found = fields.find(name);
    const YAML::Node& at = found == fields.end() ? parent : found->second;
    if (found == fields.end() || !at.IsSequence() || at.size() == 0) {
      return Fail(at, absl::StrCat(name, " must be a list with at least one entry"));
    }
    return at;
  }

  absl::StatusOr<std::string> TextOf(const YAML::Node& node, absl::string_view what) const {
    if (!node.IsScalar() || node.Scalar().empty()) {
      return Fail(node, absl::StrCat(what, " must be a single value"));
    }
    return node.Scalar();
  }

  absl::Status ReadTenant(const YAML::Node& node) {
    ANNULUS_ASSIGN_OR_RETURN(const Fields fields,
                             ReadFields(node, "a tenant", {"name", "quotas", "callers"}));
    const auto name = fields.find("name");
    if (name == fields.end()) return Fail(node, "a tenant needs a name");
    ANNULUS_ASSIGN_OR_RETURN(const std::string text, TextOf(name->second, "name"));
    Caller caller;
    const auto tenant = TenantId::FromName(text);
    ANNULUS_RETURN_IF_ERROR(At(name->second, "name", tenant.status()));
    caller.tenant = *tenant;
    if (!names_.insert(text).second) {
      return Fail(
          name->second,
          absl::StrCat("the tenant ", text, " is given twice; put all its callers into one entry"));
    }
    const auto quotas = fields.find("quotas");
    if (quotas != fields.end()) {
      ANNULUS_ASSIGN_OR_RETURN(caller.quotas, ReadQuotas(quotas->second));
    }
    ANNULUS_ASSIGN_OR_RETURN(const YAML::Node callers, ListOf(node, fields, "callers"));
    for (const YAML::Node& entry : callers) ANNULUS_RETURN_IF_ERROR(ReadCaller(entry, caller));
    return absl::OkStatus();
  }

  absl::StatusOr<Quotas> ReadQuotas(const YAML::Node& node) const {
    ANNULUS_ASSIGN_OR_RETURN(
        const Fields fields,
        ReadFields(node, "quotas",
                   {"requests_per_minute", "tokens_per_minute", "running_requests", "documents",
                    "document_bytes", "kv_bytes", "host_bytes", "disk_bytes"}));
    Quotas quotas;
    const std::map<std::string, int64_t*> places = {
        {"requests_per_minute", &quotas.requests_per_minute},
        {"tokens_per_minute", &quotas.tokens_per_minute},
        {"running_requests", &quotas.running_requests},
        {"documents", &quotas.documents},
        {"document_bytes", &quotas.document_bytes},
        {"kv_bytes", &quotas.room.kv_bytes},
        {"host_bytes", &quotas.room.host_bytes},
        {"disk_bytes", &quotas.room.disk_bytes}};
    for (const auto& [name, value] : fields) {
      ANNULUS_ASSIGN_OR_RETURN(const std::string text, TextOf(value, name));
      if (absl::EndsWith(name, "_bytes")) {
        const auto bytes = ParseSize(text, 1, static_cast<size_t>(kMostOfAQuota));
        ANNULUS_RETURN_IF_ERROR(At(value, name, bytes.status()));
        *places.at(name) = static_cast<int64_t>(*bytes);
        continue;
      }
      const auto number = ParseInteger(text, 1, kMostOfAQuota);
      ANNULUS_RETURN_IF_ERROR(At(value, name, number.status()));
      *places.at(name) = *number;
    }
    return quotas;
  }

  // `caller` has the tenant and its quotas; its roles are read here.
  absl::Status ReadCaller(const YAML::Node& node, Caller caller) {
    ANNULUS_ASSIGN_OR_RETURN(const Fields fields,
                             ReadFields(node, "a caller", {"token", "certificate", "roles"}));
    const auto token = fields.find("token");
    const auto certificate = fields.find("certificate");
    if ((token == fields.end()) == (certificate == fields.end())) {
      return Fail(node, token == fields.end()
                            ? "a caller needs a token or a certificate; give one of them"
                            : "a caller has a token and a certificate; give one of them");
    }
    ANNULUS_ASSIGN_OR_RETURN(const YAML::Node roles, ListOf(node, fields, "roles"));
    caller.roles = Roles();
    for (const YAML::Node& entry : roles) {
      ANNULUS_ASSIGN_OR_RETURN(const std::string name, TextOf(entry, "a role"));
      const auto role = ParseRole(name);
      ANNULUS_RETURN_IF_ERROR(At(entry, "roles", role.status()));
      caller.roles.Add(*role);
    }
    const YAML::Node& value = token != fields.end() ? token->second : certificate->second;
    ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                             TextOf(value, token != fields.end() ? "token" : "certificate"));
    if (!callers_.insert(text).second) {
      return Fail(value,
                  "an earlier caller has the same token or certificate; give each caller its own");
    }
    if (certificate != fields.end()) {
      file_.certificates.emplace_back(text, std::move(caller));
      return absl::OkStatus();
    }
    const auto hash = TokenHash::Parse(text);
    if (!hash.ok()) return Fail(value, hash.status().message());
    file_.tokens.emplace_back(*hash, std::move(caller));
    return absl::OkStatus();
  }

  const std::string& path_;
  TenantFile file_;
  std::set<std::string> names_;    // of tenants
  std::set<std::string> callers_;  // hashes of tokens and names of certificates
};

}  // namespace

absl::StatusOr<TenantFile> ParseTenantFile(const std::string& path, const std::string& text) {
  try {
    return Reader(path).Read(YAML::Load(text));
  } catch (const YAML::Exception& error) {  // the library's way to report any malformed file
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", error.mark.line + 1, ": not valid YAML: ", error.msg));
  }
}

}  // namespace annulus::server

#include "server/identity/call_roles.h"

namespace annulus::server {
namespace {

struct Row {
  absl::string_view method;
  Roles roles;
};

constexpr Row kRows[] = {
    {"Generate", {Role::kGenerate}},
    {"StreamGenerate", {Role::kGenerate}},
    {"AskMany", {Role::kGenerate}},
    {"Plan", {Role::kGenerate}},
    {"Tokenize", {Role::kGenerate}},
    {"Detokenize", {Role::kGenerate}},
    {"ApplyChatTemplate", {Role::kGenerate}},
    {"MapAttention", {Role::kGenerate}},
    {"RenderPrompt", {Role::kGenerate}},
    {"UploadDocument", {Role::kDocuments}},
    {"GetDocument", {Role::kDocuments}},
    {"DownloadDocument", {Role::kDocuments}},
    {"ListDocuments", {Role::kDocuments}},
    {"DeleteDocument", {Role::kDocuments}},
    {"PrefillDocument", {Role::kGenerate}},
    {"UnpinDocument", {Role::kGenerate, Role::kDocuments}},
    {"ListModels", {}},
    {"GetModel", {}},
    {"GetServerInfo", {}},
    {"GetLoad", {Role::kMetrics, Role::kAdmin}},
    {"Drain", {Role::kAdmin}},
    // Over HTTP: see server/http/routes.h.
    {"/v1/chat/completions", {Role::kGenerate}},
    {"/v1/completions", {Role::kGenerate}},
    {"/v1/streams/*", {Role::kGenerate}},
    {"/tokenize", {Role::kGenerate}},
    {"/detokenize", {Role::kGenerate}},
    {"/v1/responses", {Role::kGenerate}},
    {"/v1/messages", {Role::kGenerate}},
    {"/v1/messages/count_tokens", {Role::kGenerate}},
    {"/v1/files", {Role::kDocuments}},
    {"/v1/files/*", {Role::kDocuments}},
    {"/v1/files/*/content", {Role::kDocuments}},
    {"/v1/models", {}},
    {"/v1/models/*", {}},
    {"/version", {}},
};

}  // namespace

Roles RolesFor(absl::string_view method) {
  for (const Row& row : kRows) {
    if (row.method == method) return row.roles;
  }
  return {Role::kAdmin};
}

std::vector<absl::string_view> AllMethods() {
  std::vector<absl::string_view> names;
  for (const Row& row : kRows) names.push_back(row.method);
  return names;
}

}  // namespace annulus::server

#include "server/http/routes.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/version.h"
#include "server/http/anthropic/messages_answer.h"
#include "server/http/files/file_routes.h"
#include "server/http/json/json_text.h"
#include "server/http/openai/completions_answer.h"
#include "server/http/openai/responses_answer.h"
#include "server/http/tokenize_routes.h"
#include "server/metrics/server_state.h"

namespace annulus::server {
namespace {

HttpAnswer Json(std::string body) {
  return {.content_type = "application/json", .body = std::move(body)};
}

// In a shape that the SDKs of OpenAI and Anthropic read.
std::string ModelJson(const ServiceContext& context, const Engine& engine) {
  const auto started =
      std::chrono::system_clock::now() - (std::chrono::steady_clock::now() - context.started);
  const auto created =
      std::chrono::duration_cast<std::chrono::seconds>(started.time_since_epoch()).count();
  const std::string name = JsonString(context.config.served_model_name);
  return absl::StrCat(
      "{\"id\":", name, ",\"object\":\"model\",\"type\":\"model\",\"created\":", created,
      ",\"created_at\":", created, ",\"display_name\":", name,
      ",\"owned_by\":\"annulus\",\"max_model_len\":", engine.model().max_context, "}");
}

absl::StatusOr<HttpAnswer> ListModels(ServiceContext& context, absl::string_view) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  return Json(absl::StrCat("{\"object\":\"list\",\"has_more\":false,\"data\":[",
                           ModelJson(context, *engine), "]}"));
}

absl::StatusOr<HttpAnswer> GetModel(ServiceContext& context, absl::string_view name) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(name));
  return Json(ModelJson(context, *engine));
}

absl::StatusOr<HttpAnswer> Health(ServiceContext& context, absl::string_view) {
  const v1::ServerState state = StateOf(context.lifecycle);
  HttpAnswer answer = Json(absl::StrCat("{\"status\":", JsonString(StateName(state)), "}"));
  if (state != v1::SERVER_STATE_SERVING) answer.status = 503;
  return answer;
}

absl::StatusOr<HttpAnswer> Version(ServiceContext&, absl::string_view) {
  return Json(absl::StrCat("{\"version\":", JsonString(kVersion), "}"));
}

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", FormReader(ReadChatForm)},
    {"POST", "/v1/completions", FormReader(ReadCompletionForm)},
    {"GET", "/v1/streams/*", ReplayRoute()},
    {"POST", "/v1/responses", FormReader(ReadResponsesForm)},
    {"POST", "/v1/messages", FormReader(ReadMessagesForm)},
    {"POST", "/v1/messages/count_tokens", WorkHandler(CountMessageTokens)},
    {"POST", "/v1/files", FileUpload()},
    {"GET", "/v1/files", WorkHandler(ListFiles)},
    {"GET", "/v1/files/*/content", FileDownload()},
    {"GET", "/v1/files/*", WorkHandler(GetFile)},
    {"DELETE", "/v1/files/*", WorkHandler(DeleteFile)},
    {"POST", "/tokenize", WorkHandler(AnswerTokenize)},
    {"POST", "/detokenize", WorkHandler(AnswerDetokenize)},
    {"GET", "/v1/models", AnswerNow(ListModels)},
    {"GET", "/v1/models/*", AnswerNow(GetModel)},
    {"GET", "/health", AnswerNow(Health), /*for_probes=*/true},
    {"GET", "/version", AnswerNow(Version)},
    {"GET", "/", PageFileRoute(), /*for_probes=*/true},
    {"GET", "/page/*", PageFileRoute(), /*for_probes=*/true},
};

}  // namespace

std::span<const Route> AllRoutes() { return kRoutes; }

const Route* FindRoute(absl::string_view method, absl::string_view path, absl::string_view& rest) {
  const Route* found = nullptr;
  for (const Route& route : kRoutes) {
    absl::string_view left = path;
    const size_t star = route.path.find('*');
    const bool fits = star == absl::string_view::npos
                          ? path == route.path
                          : absl::ConsumePrefix(&left, route.path.substr(0, star)) &&
                                absl::ConsumeSuffix(&left, route.path.substr(star + 1)) &&
                                !left.empty();
    if (!fits || (found != nullptr && route.method != method)) continue;
    found = &route;
    rest = star == absl::string_view::npos ? "" : left;
    if (route.method == method) break;
  }
  return found;
}

}  // namespace annulus::server

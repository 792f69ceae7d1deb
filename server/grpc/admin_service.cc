#include "server/grpc/admin_service.h"

#include <chrono>
#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/version.h"
#include "server/generation/messages.h"
#include "server/grpc/calls/unary_call.h"
#include "server/metrics/memory_report.h"
#include "server/metrics/server_state.h"

namespace annulus::server {
namespace {

constexpr double kLongestGraceSeconds = 86400;

absl::Status HandleGetServerInfo(ServiceContext& context, const v1::GetServerInfoRequest&,
                                 v1::GetServerInfoResponse& response) {
  const ServerConfig& config = context.config;
  response.set_version(kVersion);
  response.set_state(StateOf(context.lifecycle));
  response.set_awaited(context.lifecycle.awaited());
  response.set_uptime(
      std::chrono::duration<double>(std::chrono::steady_clock::now() - context.started).count());
  if (context.lifecycle.engine().ok()) response.add_models(config.served_model_name);
  response.set_ranks(config.engine.ranks);
  response.set_attention(AssignmentText(config.engine.attention));
  v1::ServerLimits* limits = response.mutable_limits();
  limits->set_max_message_bytes(static_cast<int64_t>(config.max_message_bytes));
  limits->set_max_document_bytes(static_cast<int64_t>(config.documents.max_document_bytes));
  limits->set_max_stored_bytes(static_cast<int64_t>(config.documents.max_memory));
  limits->set_max_documents(config.documents.max_documents);
  limits->set_max_running(config.engine.max_running);
  limits->set_max_waiting(config.engine.max_waiting);
  return absl::OkStatus();
}

absl::Status HandleGetLoad(ServiceContext& context, const v1::GetLoadRequest&,
                           v1::GetLoadResponse& response) {
  const auto engine = context.lifecycle.engine();
  // Nothing runs while loading: zeros say so, and operators are answered in every state.
  if (!engine.ok()) return absl::OkStatus();
  const EngineLoad load = (*engine)->Load();
  response = ToMessage(load);
  v1::ProcessMemory& memory = *response.mutable_memory();
  for (const auto& [part, bytes] : ForeseenMemory(load.memory, context.held_most())) {
    (*memory.mutable_foreseen_bytes())[part] = bytes;
  }
  memory.set_resident_bytes(load.process.resident);
  memory.set_resident_most_bytes(load.process.resident_most);
  return absl::OkStatus();
}

absl::Status HandleDrain(ServiceContext& context, const v1::DrainRequest& request,
                         v1::DrainResponse& response) {
  std::optional<std::chrono::milliseconds> grace;
  if (request.has_grace_seconds()) {
    const double seconds = request.grace_seconds();
    if (!(seconds >= 0 && seconds <= kLongestGraceSeconds)) {
      return FieldError("grace_seconds",
                        absl::StrCat(seconds, " is not allowed: 0 to ", kLongestGraceSeconds));
    }
    grace = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  }
  const auto engine = context.lifecycle.engine();
  if (engine.ok()) {
    const EngineLoad load = (*engine)->Load();
    response.set_running(load.running);
    response.set_waiting(load.waiting);
  }
  context.log.FromClient(LogLevel::kInfo, "drain_requested", {{"by", "client"}});
  context.lifecycle.RequestDrain(grace);
  return absl::OkStatus();
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::GetServerInfo(grpc::CallbackServerContext* call,
                                                      const grpc::ByteBuffer* request,
                                                      grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "GetServerInfo"}, HandleGetServerInfo);
}

grpc::ServerUnaryReactor* AdminService::GetLoad(grpc::CallbackServerContext* call,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "GetLoad"}, HandleGetLoad);
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* call,
                                              const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) {
  return AnswerNow(context_, {call, request, response, "Drain", /*for_admins=*/true}, HandleDrain);
}

}  // namespace annulus::server

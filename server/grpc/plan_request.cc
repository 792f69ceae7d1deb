#include "server/grpc/plan_request.h"

#include <utility>

#include "engine/api.h"
#include "kernels/base/status_macros.h"
#include "server/generation/request_builder.h"
#include "server/identity/quota_error.h"

namespace annulus::server {
namespace {

v1::PlanResponse::Fit FitOf(RoomFor room) {
  switch (room) {
    case RoomFor::kNow:
      return v1::PlanResponse::FIT_NOW;
    case RoomFor::kLater:
      return v1::PlanResponse::FIT_LATER;
    case RoomFor::kNever:
      break;
  }
  return v1::PlanResponse::FIT_NEVER;
}

void Fill(const RequestPlan& plan, v1::PlanResponse& response) {
  response.set_fit(FitOf(plan.room));
  response.set_obstacle(plan.obstacle);
  for (const RankPlan& rank : plan.ranks) {
    v1::PlannedRank& planned = *response.add_ranks();
    planned.set_rank(rank.rank);
    planned.set_kv_bytes(rank.kv_bytes);
    planned.set_cached_bytes(rank.cached_bytes);
    planned.set_kv_bytes_total(rank.kv_bytes_total);
  }
  response.set_cached_tokens(plan.cached_tokens);
  response.set_host_tokens(plan.host_tokens);
  response.set_disk_tokens(plan.disk_tokens);
  response.set_policy(plan.policy);
  response.set_choice(plan.choice);
  if (plan.density.has_value()) response.set_density(*plan.density);
  response.set_requests_ahead(plan.requests_ahead);
  if (!plan.seconds.has_value()) return;
  response.set_time_to_first_token(plan.seconds->first_token);
  response.set_prefill(plan.seconds->prefill);
}

}  // namespace

absl::Status HandlePlan(const OwnWork& work, const v1::PlanRequest& request,
                        v1::PlanResponse& response, const CancelFlag& cancel) {
  ServiceContext& context = work.context;
  ANNULUS_ASSIGN_OR_RETURN(Engine * engine, context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.spec().model()));
  ANNULUS_ASSIGN_OR_RETURN(
      BuiltRequest built,
      BuildRequest(request.spec(), *engine, context.documents, work.tenant, work.memory, cancel));
  RequestSpec& spec = built.spec;
  spec.tenant_room = work.caller.quotas.room;
  // The memory for building the request is free again; the spec stays until the engine has
  // answered.
  ANNULUS_RETURN_IF_ERROR(work.memory.Keep(KeptBytes(spec)));
  const auto prompt = static_cast<int64_t>(spec.prompt.size());
  const int64_t answer = spec.sampling.max_tokens;
  const int64_t context_tokens = engine->model().max_context;
  const absl::StatusOr<RequestPlan> plan = engine->Plan(std::move(spec), cancel);
  if (absl::IsOutOfRange(plan.status())) {
    return TooLargeError(request.spec(), plan.status(), prompt + answer, context_tokens);
  }
  if (!plan.ok()) {
    return NoteKvRefusal(PlaceField(request.spec(), plan.status()), work.caller, *context.quotas);
  }
  response.set_prompt_tokens(prompt);
  response.set_max_answer_tokens(answer);
  response.set_max_context(context_tokens);
  response.set_system_folded(built.system_folded);
  Fill(*plan, response);
  return absl::OkStatus();
}

}  // namespace annulus::server

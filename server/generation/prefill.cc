#include "server/generation/prefill.h"

#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/peer_address.h"
#include "server/generation/request_builder.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// A placeholder for the question: the prompt before it does not depend on it. Not empty, because
// some templates refuse empty messages.
constexpr char kAnyQuestion[] = "?";

// Holds the memory of a prefill for which nobody waits, and logs its failure.
class PinSink final : public TokenSink {
 public:
  PinSink(const ServiceContext& context, TenantId tenant)
      : memory(context.prompts), log_(context.log), tenant_(std::move(tenant)) {}

  void OnQueued(int) override {}
  void OnProgress(const PromptProgress&) override {}
  void OnDelta(Delta) override {}
  void OnDone(Completion completion) override { Note(completion.status); }
  bool HasRoom() const override { return true; }

  void Note(const absl::Status& status) const {
    if (status.ok()) return;
    log_.FromClient(LogLevel::kInfo, "documents_not_pinned",
                    {{"tenant", tenant_.name()}, {"cause", status.message()}});
  }

  CallMemory memory;

 private:
  const Logger& log_;
  const TenantId tenant_;
};

absl::Status SubmitPin(ServiceContext& context, const Caller& caller, const std::string& peer,
                       const AskedGeneration& pin, const std::shared_ptr<PinSink>& sink,
                       const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(Engine* const engine, context.lifecycle.engine_for_changes());
  const FoundDocuments* const found = pin.documents.has_value() ? &*pin.documents : nullptr;
  ANNULUS_ASSIGN_OR_RETURN(BuiltRequest built,
                           BuildRequest(pin.spec, *engine, context.documents, caller.tenant,
                                        sink->memory, cancel, found));
  CutAfterDocuments(built.spec);
  built.spec.pin = pin.pin;
  built.spec.ttl = pin.ttl;
  built.spec.tenant_room = caller.quotas.room;
  built.spec.client = AddressOf(peer);
  built.spec.connection = peer;
  ANNULUS_RETURN_IF_ERROR(sink->memory.Keep(KeptBytes(built.spec)));
  return engine->Submit(std::move(built.spec), sink).status();
}

}  // namespace

void SetPrefillMessages(v1::GenerationSpec& spec, std::optional<std::string> system) {
  if (system.has_value()) {
    v1::Message& message = *spec.mutable_messages()->add_messages();
    message.set_role("system");
    message.set_content(*std::move(system));
  }
  v1::Message& question = *spec.mutable_messages()->add_messages();
  question.set_role("user");
  question.set_content(kAnyQuestion);
}

std::optional<AskedGeneration> PinOf(const AskedGeneration& asked, std::chrono::milliseconds time) {
  const v1::GenerationSpec& spec = asked.spec;
  if (spec.documents().empty() || spec.messages().messages().empty()) return std::nullopt;
  AskedGeneration pin;
  pin.prefill_only = true;
  pin.pin = true;
  pin.ttl = time;
  pin.documents = asked.documents;
  pin.spec.set_model(spec.model());
  *pin.spec.mutable_documents() = spec.documents();
  if (spec.has_attention()) *pin.spec.mutable_attention() = spec.attention();
  pin.spec.set_framing(spec.framing());
  pin.spec.set_priority(spec.priority());
  const v1::Message& first = spec.messages().messages(0);
  const bool has_system = first.role() == "system";
  SetPrefillMessages(pin.spec, has_system ? std::optional(first.content()) : std::nullopt);
  return pin;
}

void StartPin(ServiceContext& context, const Caller& caller, const std::string& peer,
              AskedGeneration pin) {
  const auto sink = std::make_shared<PinSink>(context, caller.tenant);
  const auto asked = std::make_shared<AskedGeneration>(std::move(pin));
  const auto run = [&context, caller, peer, asked, sink](const WorkTurn& turn) {
    sink->Note(Guarded([&] { return SubmitPin(context, caller, peer, *asked, sink, turn); }));
  };
  Job job{kPrefillDocument, caller.tenant.name(), 0, run};
  if (!context.pool.TryRun(context.pool.NewId(), std::move(job))) {
    sink->Note(context.PoolRefusal());
  }
}

void CutAfterDocuments(RequestSpec& request) {
  ANNULUS_CHECK(!request.shared_prefixes.empty()) << "a prefill without a document";
  request.prefill_only = true;
  request.prompt.resize(static_cast<size_t>(request.shared_prefixes.back()));
}

absl::Status PlacePrefillField(absl::Status status) {
  const auto payload = status.GetPayload(kFieldPayload);
  if (!payload.has_value()) return status;
  const std::string path(*payload);
  absl::string_view field = absl::StripPrefix(path, "spec.");
  if (absl::StartsWith(field, "documents")) field = "name";
  if (absl::StartsWith(field, "messages")) field = "system";
  if (absl::StartsWith(field, "sampling")) field = "name";  // the context has no room for an answer
  return MoveField(status, field);
}

}  // namespace annulus::server

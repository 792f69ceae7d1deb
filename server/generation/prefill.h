#ifndef ANNULUS_SERVER_GENERATION_PREFILL_H_
#define ANNULUS_SERVER_GENERATION_PREFILL_H_

// A prefill is a generation of which only the prompt is computed, up to the end of its last
// document.

#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/generation/generation_run.h"
#include "server/generation/service_context.h"

namespace annulus::server {

// The name of the call that asks for one.
inline constexpr char kPrefillDocument[] = "PrefillDocument";

// Sets the messages of a prompt that is computed up to its documents: `system`, if it has a system
// message, and any question.
void SetPrefillMessages(v1::GenerationSpec& spec, std::optional<std::string> system);

// The prefill that keeps the documents of a generation pinned for `time`; nullopt if it has none.
std::optional<AskedGeneration> PinOf(const AskedGeneration& asked, std::chrono::milliseconds time);
// Starts such a prefill once the generation has ended, when its keys and values are cached. Nobody
// waits for it. If the tenant's pinned documents have no room, the documents stay cached like
// others; the log says so. `peer`: see CallContext.
void StartPin(ServiceContext& context, const Caller& caller, const std::string& peer,
              AskedGeneration pin);

// Cuts a prompt after the frame of its last document, and sets prefill_only. The request must have
// a document.
void CutAfterDocuments(RequestSpec& request);

// Replaces the name of a GenerationSpec field in an error by the field of PrefillDocumentRequest.
absl::Status PlacePrefillField(absl::Status status);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_PREFILL_H_

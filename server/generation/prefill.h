#ifndef ANNULUS_SERVER_GENERATION_PREFILL_H_
#define ANNULUS_SERVER_GENERATION_PREFILL_H_

// A prefill is a generation of which only the prompt is computed, up to the end of its last
// document.

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus::server {

// The name of the call that asks for one.
inline constexpr char kPrefillDocument[] = "PrefillDocument";

// Cuts a prompt after the frame of its last document, and sets prefill_only. The request must have
// a document.
void CutAfterDocuments(RequestSpec& request);

// Replaces the name of a GenerationSpec field in an error by the field of PrefillDocumentRequest.
absl::Status PlacePrefillField(absl::Status status);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_PREFILL_H_

#ifndef ANNULUS_SERVER_REQUEST_BUILDER_H_
#define ANNULUS_SERVER_REQUEST_BUILDER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/call_memory.h"
#include "server/document_store.h"

namespace annulus {

// The documents that a request names, in its order, and when they were looked up.
struct FoundDocuments {
  std::vector<DocumentPtr> list;
  SteadyTime at;
};
// NOT_FOUND, or INVALID_ARGUMENT for a text that can be no document's name.
absl::StatusOr<FoundDocuments> FindDocuments(const v1::GenerationSpec& spec,
                                             const DocumentStore& store, const TenantId& tenant);

// OK, or INVALID_ARGUMENT: 1 to 128 printable ASCII characters.
absl::Status CheckRequestId(absl::string_view request_id);

// Turns a request into the engine's form: the tokenizer's special prefix, the documents' ids in
// their order, the input's ids, and the sampling fields that are present; the model's defaults for
// the others; the attention policy if there is one. Messages go through the model's chat template,
// which writes special tokens itself, and `tenant`'s documents stand in their frames, mostly in
// front of the first user message's content. Tokenizes, so it may take long; `cancel` ends it,
// CANCELLED. INVALID_ARGUMENT with the field, NOT_FOUND (document), OUT_OF_RANGE (longer than the
// context, found before anything that long is put together). Ranges of sampling fields and ids are
// the engine's to check; see PlaceField. `memory` holds what the work may take as kWork before it
// is done, and RESOURCE_EXHAUSTED means that there is no room. `found`: what FindDocuments gave for
// the spec; null: the documents are looked up now.
absl::StatusOr<RequestSpec> BuildRequest(const v1::GenerationSpec& spec, const Engine& engine,
                                         const DocumentStore& documents, const TenantId& tenant,
                                         CallMemory& memory, const CancelFlag& cancel,
                                         const FoundDocuments* found = nullptr);

// Bytes that the answer is sure to have in one message, however it ends.
size_t LeastAnswerBytes(const v1::SamplingParams& sampling);

// Heap that a request keeps for as long as the engine has it.
size_t KeptBytes(const RequestSpec& request);

// Puts the engine's name of a field into the request's terms: "sampling.top_p" is
// "spec.sampling.top_p", and "input" is "spec.text", "spec.messages" or "spec.token_ids".
absl::Status PlaceField(const v1::GenerationSpec& spec, absl::Status status);

// What the engine said can never fit: the reason by its kLimitPayload, and the field's path.
absl::Status TooLargeError(const v1::GenerationSpec& spec, const absl::Status& status,
                           int64_t needed, int64_t available);

// Adds to the engine's OUT_OF_RANGE the numbers that clients can read: `needed` tokens of prompt
// and answer where `available` fit.
absl::Status ContextError(absl::string_view message, int64_t needed, int64_t available);

}  // namespace annulus

#endif  // ANNULUS_SERVER_REQUEST_BUILDER_H_

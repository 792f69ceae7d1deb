#ifndef ANNULUS_SERVER_GENERATION_REQUEST_BUILDER_H_
#define ANNULUS_SERVER_GENERATION_REQUEST_BUILDER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/documents/document_store.h"
#include "server/generation/evidence_sink.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// The documents that a request names, in its order, and the time of the lookup.
struct FoundDocuments {
  std::vector<DocumentPtr> list;
  SteadyTime at;
  // What the request calls them; as many as there are documents, or none. Empty: their own titles.
  std::vector<std::string> titles = {};
  // The pieces that the client joined to a document's text, in order, if passages are to be whole
  // pieces: see EvidenceSource. As many as there are documents, or none; empty for other documents.
  std::vector<DocumentPieces> pieces = {};

  // What the model is told of a document: a title, or else its name.
  absl::string_view TitleOf(size_t index) const;
};
// Looks up the documents that a request names and marks them as used now. NOT_FOUND if one does not
// exist; INVALID_ARGUMENT if a name is not allowed.
absl::StatusOr<FoundDocuments> FindDocuments(const v1::GenerationSpec& spec,
                                             const DocumentStore& store, const TenantId& tenant);

// INVALID_ARGUMENT unless `request_id` consists of 1 to 128 printable ASCII characters.
absl::Status CheckRequestId(absl::string_view request_id);

// A request in the engine's form.
struct BuiltRequest {
  RequestSpec spec;
  bool system_folded = false;  // see RenderedChat
  // Where passages lie, for an EvidenceSink in front of the request's sink; null: no evidence is
  // asked for.
  std::shared_ptr<const EvidenceSource> evidence;
};

// Converts a request to the engine's form.
// - The prompt consists of the tokenizer's special prefix, the ids of `tenant`'s documents in
//   order, and the ids of the input. Messages go through the model's chat template, which writes
//   special tokens itself; then the documents stand in their frames, mostly before the content of
//   the first user message.
// - Sampling fields that are not set get the model's defaults.
// - Ranges of sampling fields and ids are left to the engine; see PlaceField.
//
// Tokenizes, so it may take long; `cancel` ends it with CANCELLED. Before it allocates, it holds
// the memory as kWork in `memory`. `found` is the result of FindDocuments for the spec; if null,
// the documents are looked up now.
//
// INVALID_ARGUMENT with the field; NOT_FOUND for a document; OUT_OF_RANGE if the prompt is longer
// than the context, which is found before a prompt that long is built; errors of CallMemory::Hold.
absl::StatusOr<BuiltRequest> BuildRequest(const v1::GenerationSpec& spec, const Engine& engine,
                                          const DocumentStore& documents, const TenantId& tenant,
                                          CallMemory& memory, const CancelFlag& cancel,
                                          const FoundDocuments* found = nullptr);

// The message for a number that an enum of the protocol does not have.
std::string UnknownValue(int value, const google::protobuf::EnumDescriptor* known);

// A lower bound of the answer's size in one message, in bytes.
size_t LeastAnswerBytes(const v1::SamplingParams& sampling);

// Heap bytes that a request occupies as long as the engine has it.
size_t KeptBytes(const RequestSpec& request);

// Replaces the engine's name of a field in an error by its path in the request: "sampling.top_p"
// becomes "spec.sampling.top_p", and "input" becomes "spec.text", "spec.messages" or
// "spec.token_ids".
absl::Status PlaceField(const v1::GenerationSpec& spec, absl::Status status);

// Converts the engine's OUT_OF_RANGE, a request that can never fit: chooses the reason by its
// kLimitPayload, and adds the field's path. `needed` and `available`: as for ContextError.
absl::Status TooLargeError(const v1::GenerationSpec& spec, const absl::Status& status,
                           int64_t needed, int64_t available);

// OUT_OF_RANGE with reason CONTEXT_TOO_LONG: prompt and answer have `needed` tokens, and the
// context has `available`.
absl::Status ContextError(absl::string_view message, int64_t needed, int64_t available);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_REQUEST_BUILDER_H_

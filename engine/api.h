#ifndef ANNULUS_ENGINE_API_H_
#define ANNULUS_ENGINE_API_H_

// All that the server sees of the engine. Everything here and in engine/api/ is plain data or an
// interface; every method of Engine is thread-safe.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api/chat.h"
#include "engine/api/load.h"
#include "engine/api/options.h"
#include "engine/api/plan.h"
#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/base/error_payloads.h"
#include "engine/base/tenant_id.h"
#include "engine/base/work_meter.h"
#include "engine/sparse/block_map.h"
#include "kernels/base/dtype.h"

namespace annulus {

class Backend;
class KernelRegistry;

class Engine {
 public:
  virtual ~Engine() = default;  // cancels what runs, joins all threads

  // Validates and queues a request. INVALID_ARGUMENT names the offending field in the payload
  // kFieldPayload and the allowed range in the message; what can never fit is OUT_OF_RANGE
  // with the field that is too large, kLimitPayload, and needed and available numbers; a full queue
  // is RESOURCE_EXHAUSTED with the payload kRetryPayload (milliseconds). After OK the sink
  // gets exactly one OnDone.
  virtual absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) = 0;

  // The same checks without queueing.
  virtual absl::Status Validate(const RequestSpec& spec) const = 0;

  // What the request would take if it were submitted now: nothing is queued, read or kept for it.
  // The errors of Submit, but what never fits in the memory for keys and values is no error here.
  // Waits for the step that runs, 10 s at most; RESOURCE_EXHAUSTED with kRetryPayload if that is
  // not enough or too many wait. Works on the caller's thread too, as the calls below.
  virtual absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel) const = 0;

  // Ends the request at the next chunk boundary with CANCELLED. Unknown or ended ids do nothing.
  virtual void Cancel(RequestId id) = 0;

  // The calls from here on that take a CancelFlag work on the caller's thread for as long as the
  // client's data takes. They count their steps (engine/base/work_meter.h) and end soon after the
  // flag is set, with CANCELLED; too many steps for the data are INVALID_ARGUMENT.

  // The tenant's document of this content (PromptDocument) is deleted. Keys and values of prompts
  // that held it leave memory (pinned or not, before the next step) and kv_disk, and none of a
  // request from before (RequestSpec::documents_found) gets there any more. Waits for the disk,
  // some seconds at most, by CancelFlag::WaitAside. UNAVAILABLE if the disk fails or takes longer,
  // CANCELLED, RESOURCE_EXHAUSTED without memory: then nothing finds the pages before the next
  // start, and files may stay.
  virtual absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                                      const CancelFlag& cancel) = 0;

  // The tenant's document of this content is pinned no longer, before the next step: its pages go
  // as others do. One that is not pinned stays as it is.
  virtual void UnpinDocument(const TenantId& tenant, absl::string_view content) = 0;

  // What is kept of the tenant's documents of these contents, one entry for each. Never waits for
  // the disk; looks at all pages that it has, some at a time. CANCELLED.
  virtual absl::StatusOr<std::vector<KeptDocument>> FindDocuments(
      const TenantId& tenant, std::span<const std::string> contents,
      const CancelFlag& cancel) const = 0;

  // Text must be UTF-8 (INVALID_ARGUMENT with the byte offset otherwise). `add_special` adds what
  // the tokenizer's post-processor adds, for example a beginning-of-text id.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                        const CancelFlag& cancel) const = 0;
  // The text of the ids, in UTF-8: bytes that form no character become U+FFFD.
  virtual absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                                 const CancelFlag& cancel) const = 0;

  // A new text, without what `add_special` would add. Must end before the engine and the flag,
  // which ends its Append and Finish.
  virtual std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const = 0;

  // The model's chat template applied to a conversation. INVALID_ARGUMENT names the field
  // ("messages.tools", or "messages" where the template refuses) in the payload kFieldPayload;
  // UNIMPLEMENTED if the model has no template.
  virtual absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                         const CancelFlag& cancel) const = 0;

  // The same for a model without a template: what the tokenizer adds in front of a text, the
  // documents in their plain frames, and `text` as the question.
  virtual absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                                 absl::string_view text,
                                                 const CancelFlag& cancel) const = 0;

  // Draws what a policy attends in a sequence of some length: see DrawBlockMap. `heads` 0: as many
  // as the model has for keys and values.
  virtual absl::StatusOr<BlockMap> MapAttention(BlockMapSpec spec,
                                                const CancelFlag& cancel) const = 0;

  virtual const ModelInfo& model() const = 0;
  virtual EngineLoad Load() const = 0;
  virtual std::vector<MetricFamily> Metrics() const = 0;
};

// Loads the model and starts the ranks. `backend` and `kernels` must outlive the engine.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, Backend& backend,
                                                     const KernelRegistry& kernels);

// Writes a new model directory `destination` with the weights of `directory`, or of the GGUF file
// that has this name, as `dtype`, and gives a report for people: the error of every matrix and of
// all. Contract and errors: engine/model/convert_model.h.
absl::StatusOr<std::string> ConvertModelDirectory(const std::string& directory, DType dtype,
                                                  const std::string& destination);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_H_

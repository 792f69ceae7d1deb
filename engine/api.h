#ifndef ANNULUS_ENGINE_API_H_
#define ANNULUS_ENGINE_API_H_

// The engine's whole interface for the server. Everything here and in engine/api/ is plain data or
// an interface. All methods of Engine are thread-safe.

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
#include "engine/api/output.h"
#include "engine/api/plan.h"
#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/workers.h"
#include "engine/base/error_payloads.h"
#include "engine/base/memory_grant.h"
#include "engine/base/tenant_id.h"
#include "engine/base/tokenize_memory.h"
#include "engine/base/work_meter.h"
#include "engine/sparse/block_map.h"
#include "kernels/base/dtype.h"

namespace annulus {

class Backend;
class KernelRegistry;

class Engine {
 public:
  virtual ~Engine() = default;  // cancels running requests, joins all threads

  // Validates and queues a request. After OK, `sink` receives exactly one OnDone. Errors:
  // - INVALID_ARGUMENT: kFieldPayload names the offending field, the message states the allowed
  //   range.
  // - OUT_OF_RANGE: the request can never fit. kLimitPayload names the field that is too large; the
  //   message has the needed and the available amount.
  // - RESOURCE_EXHAUSTED: the queue is full, of which one tenant, or client without a tenant, may
  //   have seven eighths. kRetryPayload says after how many milliseconds to retry.
  virtual absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) = 0;

  // Returns the error with which Submit would refuse now a request of this tenant and client that
  // it would queue; OK if the queue has room for it. Counts a refusal as Submit does. Cheap, so
  // that a request can be refused before its prompt is made, and so before anybody knows whether it
  // is valid. The queue may fill up before Submit is called.
  virtual absl::Status CheckQueue(const TenantId& tenant, const std::string& client) = 0;

  // Runs the same checks as Submit without queueing anything.
  virtual absl::Status Validate(const RequestSpec& spec) const = 0;

  // Predicts what the request would need if it were submitted now. Has no side effects: queues
  // nothing and restores nothing from kv_host or kv_disk. Returns the errors of Submit, except that
  // a request that is too large for the key/value memory is no error: its plan says
  // RoomFor::kNever. Blocks until the running step ends, at most 10 s; RESOURCE_EXHAUSTED with
  // kRetryPayload if that takes longer or too many callers wait. `cancel`: as below.
  virtual absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel) const = 0;

  // Ends the request with CANCELLED once the running step ends. No-op for unknown or ended ids.
  virtual void Cancel(RequestId id) = 0;

  // The methods below that take a CancelFlag run on the caller's thread, for as long as the
  // client's data requires. They count their work (engine/base/work_meter.h) and return CANCELLED
  // soon after the flag is set. Data that would need too much work is INVALID_ARGUMENT.

  // Deletes what the engine keeps of the tenant's document with this content (PromptDocument): keys
  // and values of all prompts that held it, pinned or not, leave memory before the next step, and
  // leave kv_host and kv_disk. Requests whose documents were looked up earlier
  // (RequestSpec::documents_found) write none of it there afterwards. Blocks on the disk for a few
  // seconds at most (CancelFlag::WaitAside). Errors:
  // - UNAVAILABLE: the disk failed or took longer.
  // - CANCELLED.
  // - RESOURCE_EXHAUSTED: out of memory.
  // After an error, requests do not find the pages any more, but files may remain on the disk, so
  // that they may be found again after a restart.
  virtual absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                                      const CancelFlag& cancel) = 0;

  // Unpins the tenant's document with this content before the next step; its pages may then be
  // evicted like any others. No-op if it is not pinned.
  virtual void UnpinDocument(const TenantId& tenant, absl::string_view content) = 0;

  // Returns what the engine keeps of each of these documents of the tenant: one entry per content,
  // in the same order. Never blocks on the disk, but scans the index of all pages that they have,
  // in batches. Returns CANCELLED if `cancel` is set.
  virtual absl::StatusOr<std::vector<KeptDocument>> FindDocuments(
      const TenantId& tenant, std::span<const std::string> contents,
      const CancelFlag& cancel) const = 0;

  // Converts text to token ids. `text` must be UTF-8; otherwise INVALID_ARGUMENT with the byte
  // offset. `add_special` adds what the tokenizer's post-processor adds, for example a
  // beginning-of-text id.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                        const CancelFlag& cancel) const = 0;
  // Converts ids to UTF-8 text. Bytes that form no valid character become U+FFFD.
  virtual absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                                 const CancelFlag& cancel) const = 0;

  // Starts a text that is tokenized in parts, without what `add_special` would add. The engine and
  // `cancel` must outlive the stream. Setting the flag ends a running Append or Finish.
  virtual std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const = 0;

  // Applies the model's chat template to a conversation. How much the template computes is known
  // only while it runs, so it asks `memory` for that, for the text and for its ids. Errors:
  // - INVALID_ARGUMENT: kFieldPayload names the field ("messages.tools", or "messages" if the
  //   template itself rejects the conversation, also with RenderedChat::system_folded).
  // - UNIMPLEMENTED: the model has no template; use FrameText.
  // - the error of `memory`, if it refuses.
  virtual absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                         const CancelFlag& cancel,
                                                         MemoryGrant& memory) const = 0;

  // Builds a prompt for a model without a template: the tokenizer's prefix, the documents in plain
  // frames, then `text` as the question.
  virtual absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                                 absl::string_view text,
                                                 const CancelFlag& cancel) const = 0;

  // Compiles what an answer must look like, for RequestSpec::output. `tenant`: of the request; what
  // was compiled for it before is found again. Asks `memory` for what it takes. Errors:
  // - INVALID_ARGUMENT: kFieldPayload is "output"; the message has the path of a keyword, or the
  //   limit.
  // - CANCELLED, and the error of `memory`.
  virtual absl::StatusOr<CompiledOutput> CompileOutput(const TenantId& tenant,
                                                       const OutputConstraint& constraint,
                                                       const CancelFlag& cancel,
                                                       MemoryGrant& memory) const = 0;

  // Draws which blocks a policy attends in a sequence of a given length: see DrawBlockMap. If
  // `heads` is 0, uses the model's number of key/value heads.
  virtual absl::StatusOr<BlockMap> MapAttention(BlockMapSpec spec,
                                                const CancelFlag& cancel) const = 0;

  // The loaded model. Never changes.
  virtual const ModelInfo& model() const = 0;
  // Takes a snapshot of the engine: of its state alone, or with its metrics.
  virtual EngineLoad Load() const = 0;
  virtual EngineReport Report() const = 0;
  std::vector<MetricFamily> Metrics() const { return Report().metrics; }
};

// Loads the model and starts its ranks. `backend` and `kernels` must outlive the engine.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, Backend& backend,
                                                     const KernelRegistry& kernels);

// Likewise, with ranks at workers, for which it waits as long as their source lasts. It then has no
// kv_host and kv_disk: INVALID_ARGUMENT. Errors of the ring: see RemoteRanks::Create.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options,
                                                     const EngineWorkers& workers, Backend& backend,
                                                     const KernelRegistry& kernels);

// Loads the model for a process that hosts ranks of an engine elsewhere. `backend` and `kernels`
// must outlive the worker.
absl::StatusOr<std::unique_ptr<Worker>> CreateWorker(const EngineOptions& options,
                                                     const WorkerOptions& worker, Backend& backend,
                                                     const KernelRegistry& kernels);

// Converts the weights in `directory`, or in the GGUF file of that name, to `dtype`, and writes
// them to a new model directory `destination`. Returns a human-readable report with the error of
// each matrix and of all together. Contract and errors: engine/model/made/convert_model.h.
absl::StatusOr<std::string> ConvertModelDirectory(const std::string& directory, DType dtype,
                                                  const std::string& destination);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_H_

#ifndef ANNULUS_SERVER_GENERATION_RUN_H_
#define ANNULUS_SERVER_GENERATION_RUN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/bounded_sink.h"
#include "server/call_memory.h"
#include "server/request_builder.h"
#include "server/service_context.h"
#include "server/shared_generation.h"

namespace annulus {

// What a call asks for.
struct AskedGeneration {
  v1::GenerationSpec spec;
  // The prompt is read up to the end of its last document, and nothing is generated.
  bool prefill_only = false;
  // As in RequestSpec.
  bool pin = false;
  std::optional<std::chrono::milliseconds> ttl = std::nullopt;
  // The documents that the spec names, if they were looked up already.
  std::optional<FoundDocuments> documents = std::nullopt;
};

// What the generations of one call have in common.
struct CallFacts {
  absl::string_view method;  // for the log; a literal
  Identity caller = {};
  std::string connection = {};  // ADDRESS:PORT: whose share of the engine the generations use
  std::string trace = {};       // see TraceOf
  SteadyTime deadline = SteadyTime::max();
};

// One generation: from its place in the caller's quotas to its terminal event. Whatever goes wrong
// arrives as a Completion with an error, so that the reader has one path only. Thread-safe from
// TakePlace on.
class GenerationRun {
 public:
  // `facts` must outlive the run; they are read from TakePlace on. `reader` must live until Close.
  GenerationRun(ServiceContext& context, const CallFacts& facts, const SinkLimits& limits,
                SinkReader& reader);

  // Counts the generation in the caller's quotas. RESOURCE_EXHAUSTED: one of them is used up.
  absl::Status TakePlace();

  // Gives the request to the engine, or follows one of the same name. On an error no event has come
  // or will: the caller calls End. An answer that is sure to have more than `most_answer_bytes` is
  // refused before any work. What the work takes is held in `memory`, as kWork and, until the
  // generation ends, as kKept. Does nothing after Abort.
  absl::Status Submit(Engine& engine, const AskedGeneration& asked, size_t most_answer_bytes,
                      CallMemory& memory, const CancelFlag& cancel);

  // The terminal event gives the place in the quotas back.
  std::optional<SinkEvent> NextEvent();
  // Has the reader called once more, after others.
  void ComeAgain() { sink_->ComeAgain(); }

  // Ends the events with `status`, unless they have ended.
  void End(absl::Status status);
  // The same, and stops the engine's work.
  void Abort(absl::Status status);
  bool aborted() const;

  // The terminal event was taken: logs a generation that ended well, and the cause of a failed one.
  void Conclude(const Completion& completion);

  // The reader ends: it is not called again once this returns.
  void Close();

  // The caller's name for the request, or ours.
  std::string request_id() const;
  void set_request_id(std::string id);
  // What the answer follows from; of a request that the engine was not given yet, nothing.
  v1::Origin origin() const;

 private:
  absl::Status SubmitOwn(Engine& engine, const v1::GenerationSpec& spec, RequestSpec request,
                         CallMemory& memory);
  absl::Status SubmitShared(Engine& engine, const v1::GenerationSpec& spec, RequestSpec request,
                            const std::string& content, CallMemory& memory);
  // Whether a request of that name is there; then this generation follows it. Holds mutex_ from the
  // first event on until shared_ is set: whoever takes that event asks shared_ for more.
  absl::StatusOr<bool> Follow(const std::string& content);
  // Leaves at once if the generation has ended. mutex_ is held.
  void AttachLocked(std::shared_ptr<SharedGeneration> generation);
  RequestKey key() const;
  void LogDone(const Completion& completion) const;

  ServiceContext& context_;
  const CallFacts& facts_;
  const std::shared_ptr<BoundedSink> sink_;
  std::unique_ptr<QuotaPlace> place_;  // set by TakePlace; thread-safe itself

  mutable std::mutex mutex_;
  std::string request_id_;
  v1::Origin origin_;  // of a request that its client has not named
  bool aborted_ = false;
  std::shared_ptr<SharedGeneration> shared_;  // of a request that its client has named
  Engine* engine_ = nullptr;  // set together with id_, once the engine has the request
  RequestId id_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GENERATION_RUN_H_

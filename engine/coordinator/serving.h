#ifndef ANNULUS_ENGINE_SERVING_H_
#define ANNULUS_ENGINE_SERVING_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/api/plan.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/answer_length.h"
#include "engine/scheduler/places.h"
#include "engine/scheduler/prompt_pace.h"
#include "engine/scheduler/quantum.h"

namespace annulus {

// Decides whose turn it is: passes requests and sequences to the pure functions of scheduler/
// (order, admission, quantum) and keeps their state. Used by the coordinator's thread alone.
class Serving {
 public:
  using Requests = std::map<RequestId, std::unique_ptr<Request>>;

  // `stall_budget`: 0: steps are as large as `limits` allows. `metrics` outlives this.
  Serving(std::chrono::milliseconds stall_budget, const PlanLimits& limits, int max_running,
          EngineMetrics& metrics);

  // Whether anything may have changed since the last pass that decides who begins.
  bool PassIsDue(SteadyTime now) const;
  // The pass. Returns those that wait in the order in which they would be served.
  std::vector<RequestId> Admit(const std::deque<RequestId>& waiting, const Requests& requests,
                               AdmissionHost& host, SteadyTime now);
  void NoteArrival() { news_ = true; }
  void NoteEnd(RequestId id, SteadyTime now);
  // A running request waits again.
  void NotePreempted(RequestId id);
  void NoteRoom();

  // Counts the places for running requests, as they are now, for one pass. One client alone never
  // gets all of them.
  Places CountPlaces(const EngineState& state, const Requests& requests) const;

  // The running sequences' indices in the order in which they are served.
  std::vector<size_t> OrderOfRunning(const EngineState& state, const Requests& requests,
                                     SteadyTime now) const;

  // What prompts do in the next step. A prompt for which `waits` is true begins no chunk in it.
  StepChoice Next(const EngineState& state, const Requests& requests,
                  const std::function<bool(SequenceId)>& waits, SteadyTime now) const;
  // A step of the plan has taken so long.
  void Took(const StepPlan& plan, const Requests& requests, double seconds);

  // A stream waited `seconds` for its next tokens. Returns whether that was longer than the stall
  // budget.
  bool CountGap(double seconds, int tokens);
  // An answer is complete.
  void CountAnswer(int64_t tokens);
  // Tokens that an answer of which there are `so_far` is expected to have in the end: see
  // AnswerLength.
  int64_t ExpectAnswer(const RequestSpec& spec, int64_t so_far) const;
  // What one more row that is sampled at `position` adds to a step that has one, as a share of it.
  double RowCost(int32_t position) const;

  // Seconds of the request's prompt that are done, with the layers of a suspended chunk that have
  // run, and still to do, as if it were alone.
  struct PromptShare {
    double done = 0;
    double left = 0;
    int64_t processed = 0;  // tokens done, with the same share of a suspended chunk's, rounded down
  };
  PromptShare ShareDone(const Request& request) const;

  // Expected seconds until the first token of a request that is submitted `now` and admitted at
  // once, after the prompts that are served before it and beside the streams that run. Nothing
  // before the first step was measured. `prompt`: its state, with cached tokens counted as
  // computed.
  std::optional<RequestPlan::Seconds> Expect(const RequestSpec& spec, const PromptState& prompt,
                                             const EngineState& state, const Requests& requests,
                                             SteadyTime now) const;

  // Seconds of a prompt's rows [begin, end), as if they were alone; 0: not known yet.
  double PromptSeconds(int32_t begin, int32_t end) const;

  // The time after which a place in the queue is likely to be free.
  std::chrono::milliseconds retry_after() const;

  double stall_seconds() const { return stall_seconds_; }
  double smallest_chunk_seconds() const { return pacer_.smallest_chunk_seconds(); }

 private:
  Contender ContenderOf(const Request& request, SteadyTime now) const;
  double AnswerSeconds(const RequestSpec& spec) const;
  void SetContending(const Requests& requests);
  void LearnPace(const StepPlan& plan, const Requests& requests, double seconds);

  const double stall_seconds_;
  const int ranks_;
  const int layers_;
  const int max_running_;
  EngineMetrics& metrics_;
  StepPacer pacer_;
  PromptPace prompt_pace_;
  FairShares shares_;
  Admission admission_;
  double turnover_seconds_ = 0.5;  // from the end of a request to that of the next, mean
  SteadyTime last_end_{};
  double token_seconds_ = 0;   // between two tokens of a stream, mean over the last of them
  double answer_tokens_ = 32;  // of an answer, mean over the last of them
  AnswerLength answer_length_;
  bool news_ = false;
  SteadyTime next_pass_{};  // though there is no news: orders change with time
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SERVING_H_

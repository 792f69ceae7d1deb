#ifndef ANNULUS_ENGINE_COORDINATOR_SERVING_H_
#define ANNULUS_ENGINE_COORDINATOR_SERVING_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/api/plan.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/request/request.h"
#include "engine/scheduler/admission.h"
#include "engine/scheduler/answer_length.h"
#include "engine/scheduler/lent_turns.h"
#include "engine/scheduler/owner_slots.h"
#include "engine/scheduler/prompt_pace.h"
#include "engine/scheduler/step_pacer.h"

namespace annulus {

// When a refused request should come again, if the ends of two requests are `turnover_seconds`
// apart and `waiting` wait: when half of them have begun, so that it finds a place and the queue
// does not run empty meanwhile; at least after two ends. From 250 ms to 60 s.
std::chrono::milliseconds RetryAfter(double turnover_seconds, int waiting);

// Whose work the request is.
ShareName ShareOf(const RequestSpec& spec);

// Decides whose turn it is: passes requests and sequences to the pure functions of scheduler/
// (order, admission, step_pacer) and keeps their state. Used by the coordinator's thread alone.
class Serving {
 public:
  // `stall_budget`: see StepPacer; 0: steps are as large as `limits` allows. `metrics` must outlive
  // the object.
  Serving(std::chrono::milliseconds stall_budget, const PlanLimits& limits, int max_running,
          EngineMetrics& metrics);

  // Whether an admission pass is due: a Note call below came since the last pass, or 100 ms have
  // passed, because the order of the waiting requests changes with time.
  bool PassIsDue(SteadyTime now) const;
  // Runs an admission pass: `host` admits what fits. Returns all of `waiting` in serving order,
  // including the requests that the pass has admitted.
  std::vector<RequestId> Admit(const std::deque<RequestId>& waiting, const Requests& requests,
                               AdmissionHost& host, SteadyTime now);
  // Call when a request has come, has ended, or waits again after running, and when pages have
  // become free in another way.
  void NoteArrival() { news_ = true; }
  void NoteEnd(RequestId id, SteadyTime now);
  void NotePreempted(RequestId id);
  void NoteRoom();

  // The slots for running requests, with one taken for each request that runs now. Make new ones
  // for each pass.
  OwnerSlots CountSlots(const EngineState& state, const Requests& requests) const;

  // The running sequences' indices in the order in which they are served.
  std::vector<size_t> OrderOfRunning(const EngineState& state, const Requests& requests,
                                     SteadyTime now) const;

  // Decides what prompts do in the next step: see StepPacer::Next. `streams`: from RowsOfStreams. A
  // prompt that is apart, or for which `waits` returns true, begins no new chunk; one that is apart
  // ends its suspended chunk only where the others leave it time. Took charges the step to the turn
  // that was chosen here.
  StepChoice Next(const EngineState& state, const Requests& requests,
                  std::span<const StreamRows> streams, const std::function<bool(SequenceId)>& waits,
                  SteadyTime now);
  // The same for a step that this prompt has for itself.
  StepChoice NextApart(const Sequence& sequence, std::span<const StreamRows> streams) const;
  // Learns from a finished step, counts it for the requests whose prompts it read, and charges its
  // time to the shares of its requests.
  void Took(const StepPlan& plan, const Requests& requests, double seconds);

  // Records that a stream waited `seconds` for its next `tokens` tokens. Returns whether that
  // exceeded the stall budget.
  bool CountGap(double seconds, int tokens);
  // Records the length of a complete answer.
  void CountAnswer(int64_t tokens);
  // The expected final length, in tokens, of an answer that has `so_far` tokens: see AnswerLength.
  int64_t ExpectAnswer(const RequestSpec& spec, int64_t so_far) const;
  // The predicted time of a row sampled at `position`, as a share of a step with only that row.
  // Between 0.02 and 0.25.
  double RowCost(int32_t position) const;

  // How far the request's prompt is (Request::tokens_to_read). Seconds are predicted for the prompt
  // alone. Of a suspended chunk, the layers that have run count as done, each by what it costs.
  struct PromptShare {
    double done = 0;        // seconds for what it has computed; cached tokens take none
    double left = 0;        // seconds
    int64_t processed = 0;  // tokens, cached ones included
  };
  PromptShare ShareDone(const Request& request) const;
  // The same, with what steps take besides their rows: by rows alone, the small steps at the start
  // would make the rest seem too long. For a request that runs.
  PromptShare ShareWithSteps(const Request& request, const EngineState& state) const;

  // Predicts when a request would have its first token if it were submitted now and admitted at
  // once: after the prompts that come before it in serving order, and beside the running streams.
  // Nothing before the first step was measured. `prompt`: its state after admission, with cached
  // tokens counted as computed.
  std::optional<RequestPlan::Seconds> Expect(const RequestSpec& spec, const PromptState& prompt,
                                             const EngineState& state, const Requests& requests,
                                             SteadyTime now) const;

  // Predicted seconds to compute a prompt's rows [begin, end) alone, with dense attention on all
  // ranks.
  double PromptSeconds(int32_t begin, int32_t end) const;

  // Seconds between the ends of two requests, of late.
  double turnover_seconds() const { return turnover_seconds_; }

  double stall_seconds() const { return stall_seconds_; }
  double smallest_chunk_seconds() const { return pacer_.smallest_chunk_seconds(); }

 private:
  Contender ContenderOf(const Request& request, SteadyTime now) const;
  double AnswerSeconds(const RequestSpec& spec) const;
  PromptState StateAhead(const Request& request) const;
  void SetContending(const Requests& requests);
  void LearnPace(const StepPlan& plan, const Requests& requests, double seconds);
  // The rows that streams are expected to have in a later step. How many guesses they will have
  // then is not known: on average, each has as many rows as streams had of late.
  std::vector<StreamRows> StreamsAhead(const EngineState& state) const;

  const double stall_seconds_;
  const int ranks_;
  const int max_running_;
  EngineMetrics& metrics_;
  StepPacer pacer_;
  PromptPace prompt_pace_;
  FairShares shares_;
  LentTurns lent_turns_;
  std::optional<LentTurns::Turn> turn_;  // of the next step
  Admission admission_;
  double turnover_seconds_ = 0.5;  // between the ends of two requests, moving mean
  SteadyTime last_end_{};          // of a request
  double token_seconds_ = 0;       // between two tokens of a stream, moving mean
  double stream_rows_ = 1;         // of a stream in a step, with its guesses, moving mean
  double answer_tokens_ = 32;      // of a complete answer, moving mean
  AnswerLength answer_length_;
  bool news_ = false;       // see PassIsDue
  SteadyTime next_pass_{};  // when a pass is due without news
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_SERVING_H_

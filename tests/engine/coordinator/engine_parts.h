#ifndef ANNULUS_TESTS_ENGINE_COORDINATOR_ENGINE_PARTS_H_
#define ANNULUS_TESTS_ENGINE_COORDINATOR_ENGINE_PARTS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/coordinator/admission/admission_pass.h"
#include "engine/coordinator/admission/page_growth.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/admission/prefix_waits.h"
#include "engine/coordinator/admission/request_starter.h"
#include "engine/coordinator/admission/restore_waits.h"
#include "engine/coordinator/admission/sequence_maker.h"
#include "engine/coordinator/admission/start_finder.h"
#include "engine/coordinator/admission/tenant_quota.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/keepers.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/plan_answers.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/coordinator/restore_checks.h"
#include "engine/coordinator/result_delivery.h"
#include "engine/coordinator/serving.h"
#include "engine/scheduler/scheduler.h"
#include "engine/text/tokenizer.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/manual_clock.h"
#include "tests/support/plain_options.h"
#include "tests/support/simulated_ranks.h"

namespace annulus::testing {

// The classes over the ledger, over simulated ranks and without the loop: a test calls them itself,
// in one thread, at times that it sets.
class EngineParts {
 public:
  static constexpr int32_t kPage = 16;

  // Two ranks of 20 pages.
  static CoordinatorOptions Options(int ranks = 2) {
    CoordinatorOptions options;
    options.engine = PlainOptions();
    options.limits = SimulatedLimits(ranks, kPage, {0});
    options.modes.mode = RingMode::kPassKv;
    options.engine.max_running = 8;
    options.identity = "simulated";
    return options;
  }

  explicit EngineParts(const CoordinatorOptions& options = Options(), int pages = 20,
                       bool has_memory = false)
      : ranks_({.ranks = options.limits.ranks,
                .pages = pages,
                .page_tokens = kPage,
                .group_windows = options.limits.group_windows,
                .has_memory = has_memory}),
        metrics_(options.limits.ranks, ModelInfo()),
        options_(WithTokenizer(options, *tokenizer_)) {}
  // All requests leave.
  ~EngineParts() {
    std::vector<RequestId> ids;
    for (const auto& [id, request] : ledger_.requests()) ids.push_back(id);
    for (const RequestId id : ids) Leave(id);
    ledger_.set_ranks_busy(false);
    ledger_.ReleaseLeft();
  }

  // A request for a prompt of `tokens` times `fill`.
  static RequestSpec Spec(int tokens, int max_tokens = 4, int32_t fill = 'x') {
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), fill);
    spec.sampling.max_tokens = max_tokens;
    spec.sampling.seed = 1;
    return spec;
  }
  // One that reads its prompt, which ends with the document, ahead.
  static RequestSpec ReadAhead(int tokens, int32_t fill, const std::string& content) {
    RequestSpec spec = Spec(tokens, 1, fill);
    spec.prefill_only = true;
    PromptDocument document;
    document.content = content;
    spec.documents.push_back(std::move(document));
    return spec;
  }

  // Adds a request, which waits.
  Request& Add(RequestSpec spec) {
    const RequestId id = next_id_++;
    sinks_[id] = std::make_shared<CollectingSink>();
    auto request = std::make_unique<Request>(id, std::move(spec), sinks_[id], *tokenizer_, clock_);
    ledger_.Add(request);
    return ledger_.request(id);
  }
  // Adds a request and begins it.
  Request& Start(RequestSpec spec) {
    Request& request = Add(std::move(spec));
    const auto answer = starter_.TryStart(request, nullptr);
    EXPECT_TRUE(answer.ok() && *answer == AdmissionHost::Answer::kAdmitted);
    return request;
  }
  // Takes a request out, and its pages back.
  void Leave(RequestId id) {
    const std::unique_ptr<Request> request = ledger_.Take(id);
    ASSERT_NE(request, nullptr) << id;
    prefix_waits_.Forget(*request);
    if (ledger_.tier() != nullptr) ledger_.tier()->Forget(id);
    ledger_.Leave(*request);
  }
  // Plans the next step, which begins.
  std::shared_ptr<StepPlan> BeginStep() {
    const std::vector<StreamRows> streams =
        RowsOfStreams(ledger_.state(), ledger_.book(), options_.limits);
    const StepChoice choice = serving_.Next(
        ledger_.state(), ledger_.requests(), streams, [](SequenceId) { return false; },
        clock_.Now());
    auto plan = std::make_shared<StepPlan>(
        PlanStep(ledger_.state(), ledger_.book(), options_.limits, options_.modes, choice.turns));
    StartStep(*plan, options_.limits, ledger_.state(), ledger_.book());
    return plan;
  }
  // Runs one step and passes on its results. Requests that end leave.
  void Step() {
    const std::shared_ptr<StepPlan> plan = BeginStep();
    const auto results = ranks_.Run(plan);
    ASSERT_TRUE(results.ok()) << results.status();
    CommitStep(*plan, *results, options_.limits, ledger_.state(), ledger_.book());
    for (const auto& sequence : ledger_.state().running) {
      if (sequence->is_check()) continue;
      Request& request = ledger_.request(sequence->id);
      const std::vector<int32_t> checkpoints = ledger_.prefixes().Keep(*sequence, request);
      if (ledger_.tier() != nullptr) {
        ledger_.tier()->saver().Offer(*sequence, request, checkpoints);
      }
    }
    DropOutsideWindows(options_.limits, ledger_.state(), ledger_.book());
    delivery_.Deliver(*plan, *results, [&](RequestId id, FinishReason reason, absl::Status status) {
      EXPECT_TRUE(status.ok()) << status;
      ended_[id] = reason;
      if (ledger_.request(id).sequence()->is_check()) {
        const std::unique_ptr<Request> check = ledger_.Take(id);
        checks_.End(*check, true);
      } else {
        Leave(id);
      }
    });
  }
  // Runs a request of this spec until it has its answer.
  void RunAlone(RequestSpec spec) {
    const RequestId id = Start(std::move(spec)).id();
    for (int step = 0; step < 1000 && !ended_.contains(id); ++step) Step();
    EXPECT_TRUE(ended_.contains(id));
  }

  int64_t FreePages() const {
    int64_t free = 0;
    for (const int32_t pages : ledger_.FreePages()) free += pages;
    return free;
  }
  int64_t PagesWithoutUse() const {
    int64_t free = 0;
    for (const int32_t pages : ledger_.PagesWithoutUse()) free += pages;
    return free;
  }

  SimulatedRanks ranks_;
  EngineMetrics metrics_;
  ManualClock clock_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  const CoordinatorOptions options_;
  std::vector<RequestId> preempted_;
  Serving serving_{*options_.engine.stall_budget, options_.limits, options_.engine.max_running,
                   metrics_};
  Ledger ledger_{options_, ranks_, clock_, [] {}};
  PolicyChooser policies_{options_, ledger_.prefixes()};
  PageNeeds needs_{options_, ranks_, ledger_, serving_};
  TenantQuota quota_{ranks_, options_.limits, ledger_, serving_};
  StartFinder finder_{options_, ledger_, needs_, quota_};
  SequenceMaker sequences_{options_, ledger_, policies_, {256}, 257};
  PrefixWaits prefix_waits_{options_, ledger_, clock_};
  RestoreWaits restore_waits_{options_, ledger_, serving_, needs_, finder_, quota_};
  RequestStarter starter_{{options_, ledger_, metrics_, policies_, needs_, finder_, sequences_}};
  PageGrowth growth_{
      {options_, ledger_, serving_, needs_, metrics_, [this](const Request& request) {
         EXPECT_NE(request.sequence(), nullptr);
         preempted_.push_back(request.id());
         prefix_waits_.Forget(request);
         finder_.Forget(request.id());
         if (ledger_.tier() != nullptr) ledger_.tier()->Forget(request.id());
       }}};
  int wakes_ = 0;
  Keepers keepers_{
      {options_, ledger_, serving_, policies_, needs_, growth_, clock_, [this] { ++wakes_; }}};
  DocumentKeeper& documents_ = keepers_.documents;
  RestoreChecks checks_{{options_, ledger_, needs_, finder_, sequences_, clock_}};
  PlanAnswers answers_{
      {options_, ranks_, ledger_, serving_, policies_, needs_, finder_, quota_, clock_}};
  ResultDelivery delivery_{ledger_, serving_, metrics_};
  std::map<RequestId, std::shared_ptr<CollectingSink>> sinks_;
  std::map<RequestId, FinishReason> ended_;
  RequestId next_id_ = 1;

 private:
  static CoordinatorOptions WithTokenizer(CoordinatorOptions options, const Tokenizer& tokenizer) {
    options.tokenizer = &tokenizer;
    return options;
  }
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_COORDINATOR_ENGINE_PARTS_H_

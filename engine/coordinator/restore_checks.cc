#include "engine/coordinator/restore_checks.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/base/try_to.h"
#include "engine/pages/request_pages.h"
#include "engine/scheduler/parking.h"

namespace annulus {
namespace {

// A sink for checks, which have no client.
class CheckSink final : public TokenSink {
 public:
  void OnQueued(int /*position*/) override {}
  void OnProgress(const PromptProgress& /*progress*/) override {}
  void OnDelta(Delta /*delta*/) override {}
  void OnDone(Completion /*completion*/) override {}
  bool HasRoom() const override { return true; }
};

}  // namespace

void RestoreChecks::Begin() {
  PageTier* const tier = use_.ledger.tier();
  bool begun = tier != nullptr && !use_.ledger.any_left();
  // Parked streams have no slots.
  while (begun && CountActive(use_.ledger.state()) < use_.options.engine.max_running) {
    const bool tried = TryTo([&] {
      std::optional<PageRestorer::Check> check = tier->restorer().NextCheck();
      begun = check.has_value() && BeginOne(*std::move(check));
    });
    if (!tried) begun = false;
  }
}

RequestSpec RestoreChecks::SpecOf(PageRestorer::Check& check) const {
  RequestSpec spec;
  spec.tenant = check.tenant;
  spec.prompt = std::move(check.tokens);
  spec.prefill_only = true;
  spec.sampling.max_tokens = 1;
  spec.sampling.seed = 0;
  const Requests& requests = use_.ledger.requests();
  if (const auto waits = requests.find(check.request); waits != requests.end()) {
    const RequestSpec& served = waits->second->spec();
    spec.tenant_room = served.tenant_room;
    spec.client = served.client;
    spec.connection = served.connection;
    spec.priority = served.priority;
    spec.deadline = served.deadline;
    spec.wanted_by = served.wanted_by;
  }
  return spec;
}

bool RestoreChecks::BeginOne(PageRestorer::Check check) {
  RequestSpec spec = SpecOf(check);
  const auto attention = check.policy.has_value()
                             ? std::make_shared<const AttentionAssignment>(*check.policy)
                             : nullptr;
  PageDemand demand = use_.needs.Of(spec, attention.get());
  // The token that is drawn is never computed, so this fits wherever the request that waits does.
  demand.tokens = std::ssize(spec.prompt);
  CountCached(check.before, use_.options.limits, demand);
  PageBook& book = use_.ledger.book();
  const SequenceId id = next_++;
  const PageOwner owner{PageOwner::Kind::kCheck, id};
  absl::Cleanup undo = [&] {
    if (book.IsOpen(owner)) book.Release(owner);
    restores_.erase(id);
  };
  book.Open(owner, spec.tenant);
  const auto accepts = [](const RingChoice&) { return true; };
  const std::optional<RingChoice> choice = use_.finder.MakeRoom(spec, demand, check.ring, accepts);
  if (!choice.has_value()) return false;
  auto request = std::make_unique<Request>(id, std::move(spec), std::make_shared<CheckSink>(),
                                           *use_.options.tokenizer, use_.clock);
  auto sequence = use_.sequences.Make(*request, owner, *choice, attention, check.rope_length);
  sequence->computed = check.before.tokens;
  ReservePages(*choice, use_.options.limits, book, *sequence);
  MapCached(check.before, *sequence);
  request->Admit(sequence.get());
  restores_.emplace(id, check.restore);
  use_.ledger.RunCheck(std::move(request), std::move(sequence));
  std::move(undo).Cancel();
  use_.ledger.tier()->restorer().BeginCheck(check.restore);
  return true;
}

void RestoreChecks::End(const Request& request, bool computed) {
  const auto restore = restores_.find(request.id());
  use_.ledger.tier()->restorer().EndCheck(restore->second, computed ? request.sequence() : nullptr);
  restores_.erase(restore);
  use_.ledger.Leave(request);
}

}  // namespace annulus

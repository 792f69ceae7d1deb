// The part of Coordinator that checks pages that a tier read back: it computes one of them again,
// as the last page of a prompt whose earlier pages are cached.

#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/coordinator.h"
#include "engine/pages/request_pages.h"
#include "engine/scheduler/parking.h"
#include "kernels/base/guarded.h"

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

// As many as find a place and room; the others wait on. Parked streams have no places.
void Coordinator::BeginChecks() {
  bool begun = tier_ != nullptr && left_.empty();
  while (begun && CountActive(state_) < options_.max_running) {
    const auto begin = [&] {
      std::optional<PageRestorer::Check> check = tier_->restorer().NextCheck();
      begun = check.has_value() && BeginCheck(*std::move(check));
      return absl::OkStatus();
    };
    if (!Guarded(begin, NoMemoryError).ok()) begun = false;
  }
}

bool Coordinator::BeginCheck(PageRestorer::Check check) {
  RequestSpec spec;
  spec.tenant = check.tenant;
  spec.prompt = std::move(check.tokens);
  spec.prefill_only = true;
  spec.sampling.max_tokens = 1;
  spec.sampling.seed = 0;
  // It is served as the request that waits for it.
  if (const auto waits = requests_.find(check.request); waits != requests_.end()) {
    const RequestSpec& served = waits->second->spec();
    spec.tenant_room = served.tenant_room;
    spec.client = served.client;
    spec.connection = served.connection;
    spec.priority = served.priority;
    spec.deadline = served.deadline;
    spec.wanted_by = served.wanted_by;
  }
  const auto attention = check.policy.has_value()
                             ? std::make_shared<const AttentionAssignment>(*check.policy)
                             : nullptr;
  PageDemand demand = DemandOf(spec, attention.get());
  // The token that is drawn is never computed, so this fits wherever the request that waits does.
  demand.tokens = std::ssize(spec.prompt);
  CountCached(check.before, options_.limits, demand);
  const SequenceId id = next_check_++;
  const PageOwner owner{PageOwner::Kind::kCheck, id};
  absl::Cleanup undo = [&] {
    if (pages_.IsOpen(owner)) pages_.Release(owner);
    requests_.erase(id);
    checks_.erase(id);
  };
  pages_.Open(owner, spec.tenant);
  const auto will_do = [](const RingChoice&) { return true; };
  const std::optional<RingChoice> choice = MakeRoom(spec, demand, check.ring, will_do);
  if (!choice.has_value()) return false;
  auto request = std::make_unique<Request>(id, std::move(spec), std::make_shared<CheckSink>(),
                                           *options_.tokenizer, clock_);
  auto sequence = MakeSequence(*request, owner, *choice, attention, check.rope_length);
  sequence->computed = check.before.tokens;
  ReservePages(*choice, options_.limits, pages_, *sequence);
  MapCached(check.before, *sequence);
  request->Admit(sequence.get());
  state_.running.reserve(state_.running.size() + 1);  // pushing it must not fail
  checks_.emplace(id, check.restore);
  requests_.emplace(id, std::move(request));
  std::move(undo).Cancel();
  tier_->restorer().BeginCheck(check.restore);
  state_.running.push_back(std::move(sequence));
  return true;
}

void Coordinator::EndCheck(std::unique_ptr<Request> request, bool computed) {
  const auto check = checks_.find(request->id());
  tier_->restorer().EndCheck(check->second, computed ? request->sequence() : nullptr);
  checks_.erase(check);
  serving_.NoteRoom();
  Leave(*request);
}

}  // namespace annulus

#include "engine/coordinator/admission/admission_pass.h"

#include "engine/base/field_error.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Tokens of prompts that one pass looks through, hashing them, before it leaves the rest to the
// next: some ten milliseconds. The last prompt may go beyond.
constexpr int64_t kMostTokensOfPass = int64_t{1} << 20;

}  // namespace

AdmissionPass::Outcome AdmissionPass::Run(SteadyTime now) {
  use_.starter.BeginPass();
  int position = 0;
  for (const RequestId id :
       use_.serving.Admit(use_.ledger.waiting(), use_.ledger.requests(), *this, now)) {
    Request& request = use_.ledger.request(id);
    if (request.sequence() == nullptr) request.ReportQueued(position++);
  }
  // The next turn continues where this pass stopped, because the results are kept.
  if (!HasTime()) use_.serving.NoteArrival();
  return std::move(outcome_);
}

bool AdmissionPass::HasTime() { return hashed_ < kMostTokensOfPass; }

const Request* AdmissionPass::RequestOf(const Contender* contender) const {
  return contender == nullptr ? nullptr : &use_.ledger.request(contender->id);
}

bool AdmissionPass::Waits(const Contender& contender, const Contender* large) {
  Request& request = use_.ledger.request(contender.id);
  // One that was preempted while its reader was slow would only be parked again.
  if (request.has_begun() && !request.sink().HasRoom()) return true;
  return use_.prefix_waits.Waits(request) ||
         use_.restore_waits.Waits(request, RequestOf(large), hashed_);
}

bool AdmissionPass::IsKept(Request& request) {
  if (!request.spec().prefill_only || request.spec().ignore_cache) return false;
  return use_.ledger.prefixes().HasAll(request.spec(), use_.policies.ChooseFor(request).get());
}

AdmissionHost::Answer AdmissionPass::TryAdmit(const Contender& contender, const Contender* large) {
  Answer answer = Answer::kNoRoom;
  bool is_kept = false;
  const auto admit = [&]() -> absl::Status {
    Request& request = use_.ledger.request(contender.id);
    hashed_ += request.tokens_to_read();
    if (IsKept(request)) {
      outcome_.kept.push_back(contender.id);
      is_kept = true;
      return absl::OkStatus();
    }
    ANNULUS_RETURN_IF_ERROR(use_.documents.CheckPinRoom(request.spec()));
    outcome_.begun.reserve(outcome_.begun.size() + 1);  // no failure once it has begun
    ANNULUS_ASSIGN_OR_RETURN(answer, use_.starter.TryStart(request, RequestOf(large)));
    return answer == Answer::kNoRoom ? use_.documents.CheckRoomBesidePins(request)
                                     : absl::OkStatus();
  };
  if (absl::Status status = Guarded(admit, NoMemoryError); !status.ok()) {
    const PageOwner owner = OwnerOfRequest(contender.id);
    if (use_.ledger.book().IsOpen(owner)) use_.ledger.book().Release(owner);
    outcome_.failed.emplace_back(contender.id, std::move(status));
    return Answer::kAdmitted;  // it waits no more
  }
  if (is_kept) return Answer::kAdmitted;  // so does it
  if (answer == Answer::kAdmitted) {
    slots_.Take(contender.share.owner());
    outcome_.begun.push_back(contender.id);
  }
  return answer;
}

}  // namespace annulus

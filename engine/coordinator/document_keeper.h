#ifndef ANNULUS_ENGINE_COORDINATOR_DOCUMENT_KEEPER_H_
#define ANNULUS_ENGINE_COORDINATOR_DOCUMENT_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>

#include "absl/status/status.h"
#include "engine/api/result.h"
#include "engine/base/clock.h"
#include "engine/coordinator/admission/page_growth.h"
#include "engine/coordinator/admission/page_needs.h"
#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/page_keeper.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/coordinator/serving.h"
#include "engine/pages/pinned_documents.h"
#include "engine/request/request.h"

namespace annulus {

// Keeps documents: pins them, ends their times to live, and deletes them. Clients' orders are
// queued and carried out by the loop between two steps. The methods of the first part are
// thread-safe; the others are for the coordinator's thread alone.
class DocumentKeeper : public PageKeeper {
 public:
  // What the keeper works with. All of it must outlive the keeper.
  struct Parts {
    const CoordinatorOptions& options;
    Ledger& ledger;
    Serving& serving;
    PolicyChooser& policies;
    const PageNeeds& needs;
    const PageGrowth& growth;
    const Clock& clock;
    std::function<void()> wake;  // must make the loop call Tend soon; thread-safe
  };
  explicit DocumentKeeper(Parts parts);

  // No-ops for a document of which nothing is kept. Forgetting a document also unpins it; a request
  // that found it before leaves nothing of it from now on.
  void Forget(DocumentTag document);
  void Unpin(DocumentTag document) { Order(document, What::kUnpin); }
  // What memory keeps of the document. Does not count what the tiers have.
  KeptDocument Find(DocumentTag document) const;

  // ---- for the loop

  // Carries out the orders since the last call, and deletes documents whose time to live is over.
  void Tend() override;
  SteadyTime NextDue() const override { return pins_.NextExpiry(); }
  void ForgetRanks(std::span<const int32_t> ranks) override { pins_.ForgetRanks(ranks); }
  void Clear() override { pins_.Clear(); }
  // Sets the pin and the time to live that a request asks for what it has read ahead. Call when it
  // has read its prompt. RESOURCE_EXHAUSTED if a pin has no room; UNAVAILABLE if a document of the
  // prompt was deleted meanwhile, or what was read has left memory.
  absl::Status KeepPrefilled(Request& request);
  // Whether the request may pin its prompt, if it wants to. Errors of PinnedDocuments::CheckRoom.
  absl::Status CheckPinRoom(const RequestSpec& spec) const;
  // Call if there is no room for the request. RESOURCE_EXHAUSTED with kLimitPayload "pinned" if
  // nothing runs whose end would free pages, so that pinned documents take its room.
  absl::Status CheckRoomBesidePins(const Request& request) const;

 private:
  enum class What : uint8_t { kUnpin, kForget };  // kForget unpins too

  void Order(DocumentTag document, What what);
  void CarryOut(DocumentTag document, What what);

  const Parts use_;
  PinnedDocuments pins_;
  // Orders that were not carried out yet: at most one for each document.
  std::mutex mutex_;
  std::map<DocumentTag, What> orders_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_DOCUMENT_KEEPER_H_

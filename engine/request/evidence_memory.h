#ifndef ANNULUS_ENGINE_REQUEST_EVIDENCE_MEMORY_H_
#define ANNULUS_ENGINE_REQUEST_EVIDENCE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/api/request.h"
#include "engine/runner/rank_model.h"
#include "engine/state/step_plan.h"
#include "kernels/backend.h"

namespace annulus {

// The host's memory that evidence takes: messages, scores and sums of EvidenceMasses, and the
// blocks of EvidenceAccount. Steps and requests allocate it when they need it, so it is bounded
// where requests begin: see EvidenceRoom. It takes nothing of a device with memory of its own.
//
// Where a request begins, its documents are known and its rows are not: guesses add rows to a
// step's one row for each answer, at most kMostSampledRows - 1 for all requests of a home rank.

// What the bytes depend on, of a model and a ring.
struct EvidenceShape {
  int64_t query_floats = 0;  // a row's queries and lse, of all layers that give evidence
  int64_t layers = 0;        // that give evidence; 0: the model gives none
  int64_t heads = 0;         // the most of any of these layers
  int32_t page_tokens = 0;   // above 0, if layers is
  int ranks = 1;             // of the ring
  // Whether Backend::AllocateHost gives pinned memory, each buffer rounded up by PinnedSize: the
  // device has memory of its own.
  bool pinned = false;
};
// `heads`: FindEvidenceHeads.
EvidenceShape EvidenceShapeOf(const RankModel& model, std::span<const LayerHead> heads, int ranks,
                              const BackendCapabilities& device);

// Bytes that one request takes on all ranks together, at most. With one rank `messages` and
// `scores` are exact, unless buffers are pinned.
struct EvidenceNeed {
  size_t messages = 0;  // of a row, from Backend::AllocateHost, until the next step begins
  size_t scores = 0;    // of a row, likewise, while a rank scores it: one request after the other
  size_t sums = 0;      // of a row, on the heap, for a step
  size_t lists = 0;     // on the heap, for a step, and the account for as long as the request runs

  // What the request itself takes, with the one row that each step has of its answer. What a rank
  // needs once, for whichever request it scores, is in EvidenceRoom::steps.
  size_t of_request() const { return messages + sums + lists; }
};
// `ranges`: EvidenceTerms::ranges. O(ranges).
EvidenceNeed NeedForEvidence(const EvidenceShape& shape, std::span<const RowRange> ranges);

// The memory that is kept for evidence.
struct EvidenceRoom {
  size_t requests = 0;  // for EvidenceNeed::of_request of all that run
  size_t steps = 0;     // for scores, and for rows of guesses

  size_t total() const { return requests + steps; }
};
// Room for requests whose documents have up to `tokens` tokens in up to kMostPlannedDocuments: for
// `max_running` of them, but not more than `most` bytes or what one takes, if that is more. Then
// others wait. Empty if the model gives no evidence.
EvidenceRoom PlanEvidence(const EvidenceShape& shape, int64_t tokens, int max_running, size_t most);
inline constexpr int64_t kMostPlannedDocuments = 64;

// INVALID_ARGUMENT with the field, if the request asks for evidence and there would be no room for
// it even alone: it has more documents than are planned for. The prompt must fit otherwise.
absl::Status CheckEvidenceRoom(const RequestSpec& spec, const EvidenceShape& shape,
                               const EvidenceRoom& room);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_EVIDENCE_MEMORY_H_

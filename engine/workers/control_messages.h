#ifndef ANNULUS_ENGINE_WORKERS_CONTROL_MESSAGES_H_
#define ANNULUS_ENGINE_WORKERS_CONTROL_MESSAGES_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/internal/v1/control.pb.h"
#include "engine/runner/rank_port.h"
#include "engine/tiers/page_entry.h"
#include "engine/workers/ring_agreement.h"

// Control messages and what they say. Decoding returns INVALID_ARGUMENT for bytes that are no such
// message and for values out of range; plans, results and the content of addresses are left to
// those who read them.

namespace annulus {

namespace wire = internal::v1;

std::string Encode(const wire::ToWorker& message);
std::string Encode(const wire::FromWorker& message);
absl::StatusOr<wire::ToWorker> DecodeToWorker(absl::string_view bytes);
absl::StatusOr<wire::FromWorker> DecodeFromWorker(absl::string_view bytes);

// What a worker makes of a coordinator that sent what it may not, at least not now:
// INVALID_ARGUMENT.
absl::Status NotDue(absl::string_view what);

// What a worker's Hello says of its side.
RingAgreement AgreementOf(const wire::Hello& hello);

// How long a worker may say nothing.
absl::StatusOr<std::chrono::milliseconds> SilenceOf(const wire::Welcome& welcome);

// A copy of a page, as its message says it.
struct PageCopy {
  wire::CopyPage::Kind kind = wire::CopyPage::KIND_UNSPECIFIED;
  PageId page;
  int32_t slot = 0;
  PageKey key;
  PageId other;
};
wire::CopyPage ToMessage(const PageCopy& copy, uint64_t ticket);
// Does not check whether there are such pages and slots.
absl::StatusOr<PageCopy> FromMessage(const wire::CopyPage& message);

// Checks an assignment of `ranks` ranks.
absl::Status CheckAssign(const wire::Assign& assign, int ranks);
// Checks how many addresses a worker of `ranks` ranks gives its wires, and how long they are.
absl::Status CheckAddresses(const wire::WireReady& wires, int ranks);

wire::RankFacts ToMessage(const RankFacts& facts);
// Of the device, which is for people, at most 256 bytes are kept, those that are not printable as
// "?".
absl::StatusOr<RankFacts> FromMessage(const wire::RankFacts& message);

wire::RankStatistics ToMessage(const RankStatistics& statistics);
// Without graphs, which no worker's device has. Any numbers are allowed.
RankStatistics FromMessage(const wire::RankStatistics& message);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_CONTROL_MESSAGES_H_

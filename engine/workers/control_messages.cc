#include "engine/workers/control_messages.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/membership/membership.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int kMostRanks = 64;  // of --ranks

absl::Status CheckField(absl::string_view what, int64_t value, int64_t low, int64_t high) {
  if (low <= value && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the other side sent ", what, " ", value, "; allowed are ", low, " to ", high));
}

template <typename Message>
absl::StatusOr<Message> Decode(absl::string_view bytes) {
  Message message;
  if (bytes.size() <= std::numeric_limits<int32_t>::max() &&
      message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) &&
      message.message_case() != Message::MESSAGE_NOT_SET) {
    return message;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the other side sent ", bytes.size(), " bytes that are no control message"));
}

// What another process says of its device, for people: it goes on to logs and to clients, whose
// messages take UTF-8 alone.
std::string DeviceText(const std::string& said) {
  constexpr size_t kMostBytes = 256;
  std::string text = said.substr(0, kMostBytes);
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

// Numbers of another process, which may be any.
int64_t AtMostInt64(uint64_t value) {
  return static_cast<int64_t>(std::min<uint64_t>(value, std::numeric_limits<int64_t>::max()));
}

}  // namespace

std::string Encode(const wire::ToWorker& message) { return message.SerializeAsString(); }
std::string Encode(const wire::FromWorker& message) { return message.SerializeAsString(); }

absl::StatusOr<wire::ToWorker> DecodeToWorker(absl::string_view bytes) {
  return Decode<wire::ToWorker>(bytes);
}
absl::StatusOr<wire::FromWorker> DecodeFromWorker(absl::string_view bytes) {
  return Decode<wire::FromWorker>(bytes);
}

absl::Status NotDue(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("the coordinator sent ", what));
}

RingAgreement AgreementOf(const wire::Hello& hello) {
  return {hello.build(), hello.kernels(), hello.page_layout(), hello.fingerprint()};
}

absl::StatusOr<std::chrono::milliseconds> SilenceOf(const wire::Welcome& welcome) {
  const int64_t silence = AtMostInt64(welcome.silence_ms());
  constexpr std::chrono::milliseconds kMost = kMostSilence;
  ANNULUS_RETURN_IF_ERROR(
      CheckField("the silence of workers in ms", silence, kLeastSilence.count(), kMost.count()));
  return std::chrono::milliseconds(silence);
}

wire::CopyPage ToMessage(const PageCopy& copy, uint64_t ticket) {
  wire::CopyPage message;
  message.set_ticket(ticket);
  message.set_kind(copy.kind);
  message.set_rank(copy.page.rank);
  message.set_page(copy.page.page);
  message.set_slot(copy.slot);
  message.set_chain(copy.key.chain.data(), copy.key.chain.size());
  message.set_group(copy.key.group);
  message.set_other_page(copy.other.page);
  return message;
}

absl::StatusOr<PageCopy> FromMessage(const wire::CopyPage& message) {
  PageCopy copy;
  copy.kind = message.kind();
  copy.page = {message.rank(), message.page()};
  copy.slot = message.slot();
  copy.other = {message.rank(), message.other_page()};
  copy.key.group = message.group();
  ANNULUS_RETURN_IF_ERROR(CheckField("a kind of copy", copy.kind, wire::CopyPage::KIND_SAVE,
                                     wire::CopyPage::KIND_SAME));
  ANNULUS_RETURN_IF_ERROR(CheckField(
      "bytes of a page's chain", static_cast<int64_t>(message.chain().size()),
      static_cast<int64_t>(copy.key.chain.size()), static_cast<int64_t>(copy.key.chain.size())));
  std::memcpy(copy.key.chain.data(), message.chain().data(), copy.key.chain.size());
  return copy;
}

absl::Status CheckAssign(const wire::Assign& assign, int ranks) {
  ANNULUS_RETURN_IF_ERROR(CheckField("the ring size", assign.ring_size(), 2, kMostRanks));
  ANNULUS_RETURN_IF_ERROR(
      CheckField("the first rank", assign.first_rank(), 0, int64_t{assign.ring_size()} - ranks));
  constexpr int64_t kMostRows = int64_t{1} << 24;
  ANNULUS_RETURN_IF_ERROR(CheckField("the rows of a rank", assign.rows_per_rank(), 1, kMostRows));
  ANNULUS_RETURN_IF_ERROR(
      CheckField("the suspended rows", assign.suspended_rows(), 0, assign.rows_per_rank()));
  ANNULUS_RETURN_IF_ERROR(CheckField("the running requests", assign.max_running(), 1, 4096));
  constexpr int64_t kMostBytes = int64_t{1} << 56;
  ANNULUS_RETURN_IF_ERROR(CheckField("the bytes of a rank's pages",
                                     AtMostInt64(assign.kv_bytes_per_rank()), 1, kMostBytes));
  ANNULUS_RETURN_IF_ERROR(CheckField("the slots of a shelf", assign.shelf_slots(), 0,
                                     std::numeric_limits<int32_t>::max()));
  constexpr int64_t kMostEpochs = int64_t{1} << 56;
  ANNULUS_RETURN_IF_ERROR(
      CheckField("the first epoch", AtMostInt64(assign.epoch()), 1, kMostEpochs));
  constexpr int64_t kHour = int64_t{60} * 60 * 1000;
  return CheckField("the exchange timeout", AtMostInt64(assign.exchange_timeout_ms()), 1, kHour);
}

absl::Status CheckAddresses(const wire::WireReady& wires, int ranks) {
  if (wires.addresses_size() != ranks) {
    return WrongMessage(absl::StrCat(wires.addresses_size(), " wires for ", ranks, " ranks"));
  }
  // Others take an empty one for that of a rank without a host. They are told all addresses in one
  // message, and one that is longer than a link takes would end the links to all of them.
  constexpr size_t kMostBytes = size_t{64} << 10;
  for (const std::string& address : wires.addresses()) {
    if (address.empty()) return WrongMessage("an empty address of a wire");
    if (address.size() > kMostBytes) {
      return WrongMessage(absl::StrCat("an address of a wire of ", address.size(),
                                       " bytes; allowed are 1 to ", kMostBytes));
    }
  }
  return absl::OkStatus();
}

wire::RankFacts ToMessage(const RankFacts& facts) {
  wire::RankFacts message;
  message.set_pages(facts.pages);
  message.set_page_bytes(facts.page_bytes);
  message.set_device(facts.device);
  message.set_node(facts.node);
  return message;
}

absl::StatusOr<RankFacts> FromMessage(const wire::RankFacts& message) {
  ANNULUS_RETURN_IF_ERROR(
      CheckField("the number of pages", message.pages(), 1, std::numeric_limits<int32_t>::max()));
  ANNULUS_RETURN_IF_ERROR(CheckField("the bytes of a page", message.page_bytes(), 1,
                                     std::numeric_limits<int64_t>::max()));
  return RankFacts{message.pages(), message.page_bytes(), DeviceText(message.device()),
                   message.node()};
}

wire::RankStatistics ToMessage(const RankStatistics& statistics) {
  const BufferPoolStats& memory = statistics.memory;
  wire::RankStatistics message;
  message.set_limit(memory.limit);
  message.set_total(memory.total);
  message.set_free(memory.free);
  message.set_held(memory.held);
  for (const size_t held : memory.held_by_lifetime) message.add_held_by_lifetime(held);
  message.set_largest_free(memory.largest_free);
  message.set_high_water_held(memory.high_water_held);
  message.set_high_water_total(memory.high_water_total);
  message.set_chunks(memory.chunks);
  message.set_trims(memory.trims);
  message.set_trimmed_bytes(memory.trimmed_bytes);
  message.set_refusals(memory.refusals);
  message.set_workspace_bytes(statistics.workspace_bytes);
  return message;
}

RankStatistics FromMessage(const wire::RankStatistics& message) {
  RankStatistics statistics;
  BufferPoolStats& memory = statistics.memory;
  memory.limit = message.limit();
  memory.total = message.total();
  memory.free = message.free();
  memory.held = message.held();
  const size_t kinds = std::min<size_t>(kLifetimeCount, message.held_by_lifetime_size());
  for (size_t kind = 0; kind < kinds; ++kind) {
    memory.held_by_lifetime[kind] = message.held_by_lifetime(static_cast<int>(kind));
  }
  memory.largest_free = message.largest_free();
  memory.high_water_held = message.high_water_held();
  memory.high_water_total = message.high_water_total();
  memory.chunks = message.chunks();
  memory.trims = message.trims();
  memory.trimmed_bytes = message.trimmed_bytes();
  memory.refusals = message.refusals();
  statistics.workspace_bytes = message.workspace_bytes();
  return statistics;
}

}  // namespace annulus

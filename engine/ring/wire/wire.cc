#include "engine/ring/wire/wire.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/memory/align.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// The places of parts that lie side by side are one.
std::vector<RingPlace> PlacesOf(std::span<const size_t> part_bytes, std::byte* into) {
  std::vector<RingPlace> places;
  for (const size_t bytes : part_bytes) {
    if (!places.empty() && places.back().data + places.back().bytes == into) {
      places.back().bytes += bytes;
    } else {
      places.push_back({into, bytes});
    }
    into += AlignUp(bytes);
  }
  return places;
}

RingParts PartsOf(std::span<const size_t> part_bytes, const std::byte* into) {
  std::vector<RingPart> parts;
  for (const size_t bytes : part_bytes) {
    parts.push_back({into, bytes});
    into += AlignUp(bytes);
  }
  return parts;
}

size_t SumOf(std::span<const size_t> part_bytes) {
  size_t sum = 0;
  for (const size_t bytes : part_bytes) sum += bytes;
  return sum;
}

}  // namespace

Wire::Wire(std::unique_ptr<Carrier> carrier, int rank, int ranks, uint64_t epoch,
           const Clock& clock)
    : rank_(rank),
      epoch_(epoch),
      clock_(clock),
      peers_(static_cast<size_t>(ranks)),
      carrier_(std::move(carrier)) {
  ANNULUS_CHECK(rank >= 0 && rank < ranks) << "rank " << rank << " of " << ranks;
  carrier_->Start(*this);
}

Wire::~Wire() = default;

absl::Status Wire::Connect(std::span<const std::string> addresses) {
  if (addresses.size() != peers_.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ring of ", peers_.size(), " ranks needs as many addresses, not ", addresses.size()));
  }
  return carrier_->Connect(rank_, addresses);
}

absl::Status Wire::Send(int peer, uint64_t tag, const RingParts& parts) {
  std::vector<size_t> sizes(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) sizes[i] = parts[i].bytes;
  FrameHeader header;
  header.epoch = epoch_;
  header.tag = tag;
  header.from = rank_;
  header.to = peer;
  header.bytes = SumOf(sizes);
  header.layout = FrameLayout(sizes);
  header.checksum = FrameChecksum(parts);
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    header.number = peers_.at(static_cast<size_t>(peer)).sent++;
    ++leaving_;
  }
  carrier_->Send(peer, EncodeFrameHeader(header), parts, [this, peer](const absl::Status& status) {
    {
      std::lock_guard lock(mutex_);
      --leaving_;
      if (!status.ok()) EndByLoss(peer, status);
    }
    changed_.notify_all();
  });
  return absl::OkStatus();
}

absl::Status Wire::Expect(int peer, uint64_t tag, std::span<const size_t> part_bytes,
                          std::byte* into) {
  Expected expected;
  expected.tag = tag;
  expected.layout = FrameLayout(part_bytes);
  expected.bytes = SumOf(part_bytes);
  expected.places = PlacesOf(part_bytes, into);
  expected.parts = PartsOf(part_bytes, into);
  Early early;
  Landing landing;
  {
    std::lock_guard lock(mutex_);
    if (!ended_.ok()) return ended_;
    Peer& from = peers_.at(static_cast<size_t>(peer));
    const uint64_t number = from.received + from.expected.size();
    from.expected.push_back(std::move(expected));
    const auto came = from.early.find(number);
    if (came == from.early.end()) return absl::OkStatus();
    early = came->second;
    from.early.erase(came);
    from.early_memory -= early.memory;
    landing = Match(early.header, from.expected.back());
  }
  // What does not match ends the epoch, which Receive reports.
  Land(early.header, early.frame, std::move(landing));
  return absl::OkStatus();
}

absl::StatusOr<RingParts> Wire::Receive(int peer, uint64_t tag, std::span<const size_t> part_bytes,
                                        SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  if (!ended_.ok()) return ended_;
  Peer& from = peers_.at(static_cast<size_t>(peer));
  if (from.expected.empty()) {
    return absl::InternalError(absl::StrCat("rank ", rank_, " awaits message ", tag, " of rank ",
                                            peer, ", which has no place to arrive in"));
  }
  Expected& next = from.expected.front();
  if (next.tag != tag || next.layout != FrameLayout(part_bytes)) {
    return absl::InternalError(absl::StrCat("rank ", rank_, " awaits message ", tag, " of rank ",
                                            peer, ", and expected ", next.tag,
                                            " or other sizes next"));
  }
  const bool ready = clock_.WaitUntil(deadline, lock, changed_, [&] {
    return !ended_.ok() || next.progress == Progress::kArrived;
  });
  if (!ready) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank_, " waited too long for rank ", peer));
  }
  if (!ended_.ok()) return ended_;
  RingParts parts = std::move(next.parts);
  from.expected.pop_front();
  ++from.received;
  return parts;
}

absl::Status Wire::Flush(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  const bool ready =
      clock_.WaitUntil(deadline, lock, changed_, [&] { return !ended_.ok() || leaving_ == 0; });
  if (!ready) {
    return absl::DeadlineExceededError(
        absl::StrCat("rank ", rank_, " waited too long for ", leaving_, " messages to leave"));
  }
  return ended_;
}

void Wire::Abort(const absl::Status& status) {
  ANNULUS_CHECK(!status.ok()) << "an abort needs its reason";
  std::lock_guard lock(mutex_);
  EndEpoch(status);
}

WireCounters Wire::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

void Wire::OnLost(int peer, const absl::Status& why) {
  std::lock_guard lock(mutex_);
  EndByLoss(peer, why);
}

void Wire::OnFrame(std::span<const std::byte> header, size_t bytes, size_t memory, uint64_t frame) {
  const absl::StatusOr<FrameHeader> decoded = DecodeFrameHeader(header);
  Landing landing{Landing::kDrop, {}};
  {
    std::lock_guard lock(mutex_);
    if (decoded.ok()) {
      landing = Sort(*decoded, bytes, memory, frame);
    } else if (absl::IsDataLoss(decoded.status())) {
      EndEpoch(absl::DataLossError(absl::StrCat(
          "rank ", rank_,
          " got a message with other bytes than were sent: ", decoded.status().message())));
    } else {
      ++counters_.strays;
    }
  }
  Land(decoded.value_or(FrameHeader()), frame, std::move(landing));
}

void Wire::EndEpoch(const absl::Status& status) {
  if (!ended_.ok()) return;
  ended_ = status;
  changed_.notify_all();
}

void Wire::EndByLoss(int peer, const absl::Status& why) {
  EndEpoch(absl::UnavailableError(
      absl::StrCat("rank ", rank_, " has lost rank ", peer, ": ", why.message())));
}

Wire::Landing Wire::Sort(const FrameHeader& header, size_t bytes, size_t memory, uint64_t frame) {
  const Landing drop{Landing::kDrop, {}};
  if (!ended_.ok()) return drop;
  if (header.epoch < epoch_) {
    ++counters_.old_epochs;
    return drop;
  }
  const bool ours = header.epoch == epoch_ && header.to == rank_ && header.from != rank_ &&
                    header.from >= 0 && header.from < ranks();
  if (!ours || header.number < peers_[static_cast<size_t>(header.from)].received) {
    ++counters_.strays;
    return drop;
  }
  if (header.bytes != bytes) {
    EndEpoch(absl::InternalError(
        absl::StrCat(Name(header), " came with ", bytes, " bytes and says ", header.bytes)));
    return drop;
  }
  Peer& from = peers_[static_cast<size_t>(header.from)];
  const uint64_t place = header.number - from.received;
  if (place >= from.expected.size()) return KeepEarly(header, memory, frame);
  Expected& expected = from.expected[place];
  if (expected.progress == Progress::kAwaited) return Match(header, expected);
  ++counters_.strays;
  return drop;
}

Wire::Landing Wire::KeepEarly(const FrameHeader& header, size_t memory, uint64_t frame) {
  Peer& from = peers_[static_cast<size_t>(header.from)];
  const uint64_t ahead = header.number - from.received - from.expected.size();
  if (ahead >= kMostEarlyFrames || memory > kMostEarlyBytes - from.early_memory) {
    EndEpoch(absl::ResourceExhaustedError(
        absl::StrCat(Name(header), " came ", ahead, " messages before it was expected, beside ",
                     from.early_memory, " bytes of others that came early")));
    return {Landing::kDrop, {}};
  }
  if (!from.early.try_emplace(header.number, Early{header, memory, frame}).second) {
    ++counters_.strays;
    return {Landing::kDrop, {}};
  }
  from.early_memory += memory;
  return {Landing::kKeep, {}};
}

Wire::Landing Wire::Match(const FrameHeader& header, Expected& expected) {
  if (header.tag != expected.tag || header.bytes != expected.bytes ||
      header.layout != expected.layout) {
    EndEpoch(absl::InternalError(
        absl::StrCat(Name(header), " of ", header.bytes, " bytes came, and expected was message ",
                     expected.tag, " of ", expected.bytes, ", or other parts")));
    return {Landing::kDrop, {}};
  }
  expected.progress = Progress::kArriving;
  return {Landing::kReceive, std::move(expected.places)};
}

void Wire::Land(const FrameHeader& header, uint64_t frame, Landing landing) {
  if (landing.what == Landing::kDrop) carrier_->Drop(frame);
  if (landing.what != Landing::kReceive) return;
  carrier_->Receive(frame, std::move(landing.places),
                    [this, header](const absl::Status& status) { FinishReceive(header, status); });
}

void Wire::FinishReceive(const FrameHeader& header, const absl::Status& status) {
  Expected* expected = nullptr;
  RingParts parts;
  {
    std::lock_guard lock(mutex_);
    if (!status.ok()) EndByLoss(header.from, status);
    if (!ended_.ok()) return;
    // It stays where it is: Receive takes only what has arrived.
    Peer& from = peers_[static_cast<size_t>(header.from)];
    expected = &from.expected[header.number - from.received];
    parts = expected->parts;
  }
  const bool intact = FrameChecksum(parts) == header.checksum;
  {
    std::lock_guard lock(mutex_);
    if (intact) {
      expected->progress = Progress::kArrived;
    } else {
      EndEpoch(absl::DataLossError(
          absl::StrCat(Name(header), " came with other bytes than were sent: wrong checksum")));
    }
  }
  changed_.notify_all();
}

std::string Wire::Name(const FrameHeader& header) const {
  return absl::StrCat("message ", header.tag, " from rank ", header.from, " to rank ", rank_);
}

}  // namespace annulus

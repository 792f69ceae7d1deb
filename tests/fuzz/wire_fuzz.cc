// Frames of strangers and of a member that means harm, between the calls of a wire's owner: what is
// received is a message that came, in its place, and no frame is kept without bound.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "engine/ring/wire/frame.h"
#include "engine/ring/wire/wire.h"
#include "tests/support/memory_carrier.h"

namespace annulus {
namespace {

constexpr int kRanks = 3;  // the wire is that of rank 0
constexpr uint64_t kEpoch = 5;
constexpr std::byte kUntouched{0xee};

void Check(bool holds) {
  if (!holds) abort();
}

// What is left of the input. After its end all numbers are 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  template <class Number = uint8_t>
  Number Next() {
    Number number = 0;
    const size_t bytes = std::min(left_, sizeof(number));
    if (bytes > 0) std::memcpy(&number, data_, bytes);
    data_ += bytes;
    left_ -= bytes;
    return number;
  }
  std::vector<std::byte> Bytes(size_t most) {
    const size_t bytes = std::min(left_, most);
    const auto* const begin = reinterpret_cast<const std::byte*>(data_);
    data_ += bytes;
    left_ -= bytes;
    return {begin, begin + bytes};
  }

 private:
  const uint8_t* data_;
  size_t left_;
};

// A message that the owner expects.
struct Place {
  uint64_t tag = 0;
  std::vector<size_t> sizes;
  std::vector<std::byte> memory;  // no byte more than the parts take
};

class WireRun {
 public:
  explicit WireRun(Input input) : WireRun(input, std::make_unique<testing::MemoryCarrier>()) {}

  void Run() {
    while (!input_.empty()) {
      Step();
      CheckAll();
    }
  }

 private:
  WireRun(Input input, std::unique_ptr<testing::MemoryCarrier> carrier)
      : input_(input),
        carrier_(*carrier),
        wire_(std::move(carrier), 0, kRanks, kEpoch, Clock::Real()) {}

  int Peer() { return 1 + input_.Next() % (kRanks - 1); }

  void Step() {
    switch (input_.Next() % 8) {
      case 0:
        return Expect(Peer());
      case 1:
        return Receive(Peer());
      case 2:
        return DeliverGarbage();
      case 3:
        return carrier_.Lose(Peer(), absl::UnavailableError("its socket closed"));
      default:
        return DeliverFrame();
    }
  }

  void Expect(int peer) {
    Place place;
    place.tag = input_.Next() % 4;
    size_t bytes = 0, end = 0;
    for (int parts = input_.Next() % 4; parts > 0; --parts) {
      place.sizes.push_back(input_.Next());
      end = bytes + place.sizes.back();
      bytes += AlignUp(place.sizes.back());
    }
    place.memory.assign(end, kUntouched);
    places_[peer].push_back(std::move(place));
    Place& kept = places_[peer].back();
    const absl::Status status = wire_.Expect(peer, kept.tag, kept.sizes, kept.memory.data());
    Check(status.ok() || status == ended());
  }

  void Receive(int peer) {
    if (places_[peer].empty()) return;
    Place& place = places_[peer].front();
    const auto parts = wire_.Receive(peer, place.tag, place.sizes, Clock::Real().Now());
    if (!parts.ok()) {
      Check(absl::IsDeadlineExceeded(parts.status()) || parts.status() == ended());
      return;
    }
    Check(parts->size() == place.sizes.size());
    Check(came_[{peer, received_[peer]}].contains({place.tag, FrameChecksum(*parts)}));
    size_t at = 0;
    for (size_t i = 0; i < place.sizes.size(); ++i) {
      Check((*parts)[i].data == place.memory.data() + at && (*parts)[i].bytes == place.sizes[i]);
      const size_t end = at + place.sizes[i];
      at += AlignUp(place.sizes[i]);
      // Between the parts nothing is written.
      if (i + 1 == place.sizes.size()) break;
      for (size_t gap = end; gap < at; ++gap) Check(place.memory[gap] == kUntouched);
    }
    places_[peer].pop_front();
    ++received_[peer];
    ++taken_;
  }

  void DeliverGarbage() {
    const std::vector<std::byte> header = input_.Bytes(input_.Next());
    std::vector<std::byte> bytes = input_.Bytes(input_.Next());
    const size_t size = bytes.size();
    carrier_.Deliver(header, std::move(bytes), size);
    ++delivered_;
  }

  // Right but for what the input says: each bit of `wrong` is a field.
  void DeliverFrame() {
    const auto wrong = input_.Next<uint16_t>();
    FrameHeader header;
    header.epoch = wrong & 1 ? kEpoch - 1 + input_.Next() % 3 : kEpoch;
    header.tag = input_.Next() % 4;
    header.from = wrong & 2 ? input_.Next<int32_t>() : Peer();
    header.to = wrong & 4 ? input_.Next<int32_t>() : 0;
    header.number = wrong & 8 ? input_.Next<uint64_t>() : input_.Next();
    std::vector<size_t> sizes;
    size_t size = 0;
    for (int parts = input_.Next() % 4; parts > 0; --parts) {
      sizes.push_back(input_.Next());
      size += sizes.back();
    }
    std::vector<std::byte> bytes = input_.Bytes(size);
    if (!(wrong & 16)) bytes.resize(size);
    header.bytes = wrong & 32 ? input_.Next<uint64_t>() : bytes.size();
    header.layout = wrong & 64 ? input_.Next<uint64_t>() : FrameLayout(sizes);
    header.checksum = FrameChecksum({{bytes.data(), bytes.size()}});
    came_[{header.from, header.number}].insert({header.tag, header.checksum});
    if (wrong & 128) header.checksum = input_.Next<uint64_t>();
    FrameHeaderBytes encoded = EncodeFrameHeader(header);
    if (wrong & 256) encoded[input_.Next() % encoded.size()] ^= std::byte{1};
    const size_t memory = wrong & 512 ? input_.Next<uint32_t>() : bytes.size();
    carrier_.Deliver(encoded, std::move(bytes), memory);
    ++delivered_;
  }

  absl::Status ended() { return wire_.Flush(Clock::Real().Now()); }

  void CheckAll() {
    const WireCounters counters = wire_.counters();
    const auto held = static_cast<int64_t>(carrier_.held());
    Check(held <= (kRanks - 1) * static_cast<int64_t>(Wire::kMostEarlyFrames));
    Check(held + counters.strays + counters.old_epochs + taken_ <= delivered_);
    // The first reason stays.
    const absl::Status now = ended();
    Check(first_.ok() || now == first_);
    first_ = now;
  }

  Input input_;
  // Outlive the wire, which may write to what is expected.
  std::map<int, std::deque<Place>> places_;  // [peer]
  std::map<int, uint64_t> received_;         // [peer] messages
  // [from, number] What came with checksums of its own bytes: tags and these.
  std::map<std::pair<int32_t, uint64_t>, std::set<std::pair<uint64_t, uint64_t>>> came_;
  int64_t delivered_ = 0;
  int64_t taken_ = 0;
  absl::Status first_;
  testing::MemoryCarrier& carrier_;
  Wire wire_;
};

}  // namespace
}  // namespace annulus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  annulus::WireRun(annulus::Input(data, size)).Run();
  return 0;
}

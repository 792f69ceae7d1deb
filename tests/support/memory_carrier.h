#ifndef ANNULUS_TESTS_SUPPORT_MEMORY_CARRIER_H_
#define ANNULUS_TESTS_SUPPORT_MEMORY_CARRIER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/ring/wire/carrier.h"
#include "kernels/base/check.h"

namespace annulus::testing {

// A carrier inside a process: frames arrive within the sender's call. Tests can deliver any frame
// to it, and see which are still there. Ends the program if a frame is received or dropped twice.
class MemoryCarrier final : public Carrier {
 public:
  // Longer frames count as if they were still with the sender.
  static constexpr size_t kMostKept = 256;

  MemoryCarrier() : end_(std::make_shared<End>()) {
    const std::lock_guard lock(all().mutex);
    address_ = absl::StrCat("memory ", all().opened++);
    all().ends.emplace(address_, end_);
  }
  ~MemoryCarrier() override {
    {
      const std::lock_guard lock(all().mutex);
      all().ends.erase(address_);
    }
    const std::lock_guard lock(end_->calls);
    end_->sink = nullptr;
  }

  void Start(CarrierSink& sink) override {
    const std::lock_guard lock(end_->calls);
    end_->sink = &sink;
  }
  const std::string& address() const override { return address_; }

  absl::Status Connect(int own, std::span<const std::string> addresses) override {
    peers_.assign(addresses.size(), nullptr);
    for (size_t rank = 0; rank < addresses.size(); ++rank) {
      if (static_cast<int>(rank) == own || addresses[rank].empty()) continue;
      if (!absl::StartsWith(addresses[rank], "memory ")) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " has no such address"));
      }
      peers_[rank] = Find(addresses[rank]);
      if (peers_[rank] == nullptr) Lose(static_cast<int>(rank), absl::UnavailableError("it left"));
    }
    return absl::OkStatus();
  }

  void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) override {
    std::vector<std::byte> bytes;
    for (size_t i = 0; i < parts.size(); ++i) {
      bytes.insert(bytes.end(), parts[i].data, parts[i].data + parts[i].bytes);
    }
    const size_t size = bytes.size();
    const bool there = peers_[peer] != nullptr &&
                       peers_[peer]->Deliver(header, std::move(bytes), size > kMostKept ? 0 : size);
    done(there ? absl::OkStatus() : absl::UnavailableError("it has no sink any more"));
  }

  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override {
    const std::vector<std::byte> bytes = end_->Take(frame);
    const std::byte* from = bytes.data();
    for (const RingPlace& place : places) {
      ANNULUS_CHECK(place.bytes <= static_cast<size_t>(bytes.data() + bytes.size() - from));
      std::copy_n(from, place.bytes, place.data);
      from += place.bytes;
    }
    done(absl::OkStatus());
  }

  void Drop(uint64_t frame) override { end_->Take(frame); }

  // A frame of anybody. `memory`: what the carrier says that it keeps for it.
  void Deliver(std::span<const std::byte> header, std::vector<std::byte> bytes, size_t memory) {
    end_->Deliver(header, std::move(bytes), memory);
  }
  void Lose(int peer, const absl::Status& why) {
    const std::lock_guard lock(end_->calls);
    end_->sink->OnLost(peer, why);
  }
  // Frames that were neither received nor dropped.
  size_t held() const {
    const std::lock_guard lock(end_->mutex);
    return end_->held.size();
  }

 private:
  struct End {
    std::mutex calls;  // held while the sink is called
    CarrierSink* sink = nullptr;
    std::mutex mutex;
    std::map<uint64_t, std::vector<std::byte>> held;
    uint64_t frames = 0;

    bool Deliver(std::span<const std::byte> header, std::vector<std::byte> bytes, size_t memory) {
      const std::lock_guard lock(calls);
      if (sink == nullptr) return false;
      const size_t size = bytes.size();
      uint64_t frame = 0;
      {
        const std::lock_guard own(mutex);
        frame = ++frames;
        held.emplace(frame, std::move(bytes));
      }
      sink->OnFrame(header, size, memory, frame);
      return true;
    }

    std::vector<std::byte> Take(uint64_t frame) {
      const std::lock_guard lock(mutex);
      const auto node = held.extract(frame);
      ANNULUS_CHECK(!node.empty()) << "frame " << frame << " is taken twice";
      return std::move(node.mapped());
    }
  };
  struct All {
    std::mutex mutex;
    uint64_t opened = 0;
    std::map<std::string, std::shared_ptr<End>> ends;  // [address] those that are open
  };
  static All& all() {
    static All ends;
    return ends;
  }

  static std::shared_ptr<End> Find(const std::string& address) {
    const std::lock_guard lock(all().mutex);
    const auto end = all().ends.find(address);
    return end == all().ends.end() ? nullptr : end->second;
  }

  const std::shared_ptr<End> end_;
  std::string address_;
  std::vector<std::shared_ptr<End>> peers_;  // [rank]
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_MEMORY_CARRIER_H_

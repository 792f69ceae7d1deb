#ifndef ANNULUS_TESTS_ENGINE_RING_SEPARATE_DEVICES_H_
#define ANNULUS_TESTS_ENGINE_RING_SEPARATE_DEVICES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "kernels/backend.h"

namespace annulus::testing {

// The processor as several devices, so that channels which copy can be tested where ops have
// finished when they return: events are always reached, a link copies at once, and a group of
// transfers ends when every peer's group with the other half of each has begun. As in NCCL the
// groups of one rank come one after the other.
class SeparateDevices final : public Backend {
 public:
  // What this machine cannot do.
  struct Faults {
    bool reach = true;
    bool library = true;
    int silent_rank = -1;   // whose groups never begin
    int failing_rank = -1;  // whose transfers fail
  };

  SeparateDevices(Backend& processor, int devices)
      : SeparateDevices(processor, devices, Faults()) {}
  SeparateDevices(Backend& processor, int devices, const Faults& faults)
      : processor_(processor), capabilities_(processor.capabilities()), faults_(faults) {
    capabilities_.devices = devices;
    for (int device = 1; device < devices; ++device) {
      others_.push_back(std::make_unique<SeparateDevices>(processor, 1, faults));
    }
  }

  const BackendCapabilities& capabilities() const override { return capabilities_; }
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    return processor_.Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    return processor_.CreateStream(threads);
  }
  absl::Status Copy(Stream& stream, void* to, const void* from, size_t bytes) override {
    return processor_.Copy(stream, to, from, bytes);
  }
  Backend& OnDevice(int device) override {
    if (device == 0) return *this;
    return *others_[static_cast<size_t>(device) - 1];
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(bool) override {
    return std::make_unique<GroupEvent>();
  }
  absl::StatusOr<std::unique_ptr<DeviceLink>> OpenLink(Backend&, LinkKind kind) override {
    if (kind == LinkKind::kPeer && !faults_.reach) {
      return absl::FailedPreconditionError("these devices do not reach each other");
    }
    return std::make_unique<LinkAtOnce>();
  }
  absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenGroup(
      int ranks, std::chrono::milliseconds) override {
    if (!faults_.library) return absl::FailedPreconditionError("there is no library");
    auto state = std::make_shared<GroupState>();
    state->groups.resize(static_cast<size_t>(ranks));
    std::vector<std::unique_ptr<Communicator>> members;
    for (int rank = 0; rank < ranks; ++rank) {
      members.push_back(std::make_unique<Member>(state, rank, faults_));
    }
    return members;
  }

 private:
  struct Half {
    std::byte* data = nullptr;
    size_t bytes = 0;
    bool begun = false;
    bool ended = false;
  };
  struct Group {
    std::vector<std::shared_ptr<Half>> halves;
    bool ended() const {
      for (const auto& half : halves) {
        if (!half->ended) return false;
      }
      return true;
    }
  };
  struct GroupEvent final : Event {
    std::shared_ptr<Group> group;
  };
  struct GroupState {
    std::mutex mutex;
    std::vector<std::vector<std::shared_ptr<Group>>> groups;  // [rank], in order
    std::map<std::pair<int, int>, std::vector<std::shared_ptr<Half>>> sent, received;  // (from, to)
  };

  class Member final : public Communicator {
   public:
    Member(std::shared_ptr<GroupState> state, int rank, const Faults& faults)
        : state_(std::move(state)), rank_(rank), faults_(faults) {}

    absl::Status Exchange(std::span<const Message> sends, std::span<const Message> receives,
                          std::span<std::byte>, const Event&, Event& done, Deadline) override {
      std::lock_guard lock(state_->mutex);
      if (aborted_) return absl::AbortedError("ended");
      auto group = std::make_shared<Group>();
      const auto add = [&group](const Message& message, auto& halves) {
        for (const Part& part : message.parts) {
          group->halves.push_back(
              halves.emplace_back(std::make_shared<Half>(Half{part.data, part.bytes})));
        }
      };
      for (const Message& message : sends) add(message, state_->sent[{rank_, message.peer}]);
      for (const Message& message : receives) {
        add(message, state_->received[{message.peer, rank_}]);
      }
      static_cast<GroupEvent&>(done).group = group;
      state_->groups[static_cast<size_t>(rank_)].push_back(std::move(group));
      Progress();
      return absl::OkStatus();
    }

    absl::StatusOr<bool> Ended(const Event& done) override {
      std::lock_guard lock(state_->mutex);
      if (aborted_) return absl::AbortedError("ended");
      if (rank_ == faults_.failing_rank) return absl::UnavailableError("a peer is gone");
      return static_cast<const GroupEvent&>(done).group->ended();
    }

    void Abort() override {
      std::lock_guard lock(state_->mutex);
      aborted_ = true;
    }

   private:
    // Begins the groups whose turn it is, and ends what has both halves begun, until nothing more
    // comes of it.
    void Progress() {
      bool more = true;
      while (more) {
        more = false;
        for (size_t rank = 0; rank < state_->groups.size(); ++rank) {
          if (static_cast<int>(rank) == faults_.silent_rank) continue;
          for (const auto& group : state_->groups[rank]) {
            for (const auto& half : group->halves) half->begun = true;
            if (!group->ended()) break;
          }
        }
        for (auto& [link, sent] : state_->sent) {
          auto& received = state_->received[link];
          for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
            if (sent[i]->ended || !sent[i]->begun || !received[i]->begun) continue;
            EXPECT_EQ(sent[i]->bytes, received[i]->bytes);
            std::memcpy(received[i]->data, sent[i]->data, sent[i]->bytes);
            sent[i]->ended = received[i]->ended = more = true;
          }
        }
      }
    }

    const std::shared_ptr<GroupState> state_;
    const int rank_;
    const Faults& faults_;
    bool aborted_ = false;
  };

  class LinkAtOnce final : public DeviceLink {
   public:
    absl::Status Copy(std::span<const DeviceCopy> copies, std::span<const Event* const>,
                      Event&) override {
      for (const DeviceCopy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
      return absl::OkStatus();
    }
    absl::Status Drain() override { return absl::OkStatus(); }
  };

  Backend& processor_;
  BackendCapabilities capabilities_;
  Faults faults_;
  std::vector<std::unique_ptr<SeparateDevices>> others_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RING_SEPARATE_DEVICES_H_

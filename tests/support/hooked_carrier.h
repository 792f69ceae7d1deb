#ifndef ANNULUS_TESTS_SUPPORT_HOOKED_CARRIER_H_
#define ANNULUS_TESTS_SUPPORT_HOOKED_CARRIER_H_

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/memory_carrier.h"

namespace annulus::testing {

// A carrier inside a process that does something whenever it is to send, on the sender's thread.
class HookedCarrier final : public Carrier {
 public:
  explicit HookedCarrier(std::function<void()> on_send) : on_send_(std::move(on_send)) {}
  void Start(CarrierSink& sink) override { carrier_.Start(sink); }
  const std::string& address() const override { return carrier_.address(); }
  absl::Status Connect(int own, std::span<const std::string> addresses) override {
    return carrier_.Connect(own, addresses);
  }
  void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) override {
    on_send_();
    carrier_.Send(peer, header, parts, std::move(done));
  }
  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override {
    carrier_.Receive(frame, std::move(places), std::move(done));
  }
  void Drop(uint64_t frame) override { carrier_.Drop(frame); }

 private:
  const std::function<void()> on_send_;
  MemoryCarrier carrier_;
};

// A door that all who come wait at until it opens, which they do for a minute at most.
class Door {
 public:
  explicit Door(bool open = false) : open_(open) {}

  void Pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [this] { return open_; }));
    --waiting_;
  }
  void Open() { Set(true); }
  void Shut() { Set(false); }
  void WaitForSomebody() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kLimit, [this] { return waiting_ > 0; }));
  }

 private:
  static constexpr std::chrono::minutes kLimit{1};

  void Set(bool open) {
    std::lock_guard lock(mutex_);
    open_ = open;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool open_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_HOOKED_CARRIER_H_

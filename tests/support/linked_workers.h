#ifndef ANNULUS_TESTS_SUPPORT_LINKED_WORKERS_H_
#define ANNULUS_TESTS_SUPPORT_LINKED_WORKERS_H_

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/workers/worker_link.h"

// Links between a coordinator and workers inside a process, with faults.

namespace annulus::testing {

// Two ends of a link. A test may change or lose messages, and break it.
class LinkedPair {
 public:
  // Called with each message on its way, one at a time; false: it is lost.
  using Fault = std::function<bool(std::string& message)>;

  explicit LinkedPair(std::string name) : name_(std::move(name)) {}

  // 0: the coordinator's end, 1: the worker's; each once.
  static std::unique_ptr<WorkerLink> End(const std::shared_ptr<LinkedPair>& pair, int side) {
    return std::make_unique<Side>(pair, side);
  }

  void ToWorker(Fault fault) { SetFault(1, std::move(fault)); }
  void FromWorker(Fault fault) { SetFault(0, std::move(fault)); }
  // The coordinator finds no memory to send those messages that `fails` takes.
  void FailSends(std::function<bool(const std::string& message)> fails) {
    const std::lock_guard lock(mutex_);
    fails_ = std::move(fails);
  }
  // From now on there is no memory to say where either side is.
  void FailNames() {
    const std::lock_guard lock(mutex_);
    nameless_ = true;
  }
  // The connection breaks.
  void Cut() { Close(absl::UnavailableError("the connection broke")); }

 private:
  struct Inbox {
    std::deque<std::string> messages;
    Fault fault;
  };

  class Side final : public WorkerLink {
   public:
    Side(std::shared_ptr<LinkedPair> pair, int side) : pair_(std::move(pair)), side_(side) {}
    ~Side() override {
      Close(absl::OkStatus());
      {
        const std::lock_guard lock(pair_->mutex_);
        stopped_ = true;
      }
      pair_->changed_.notify_all();
      if (thread_.joinable()) thread_.join();
    }
    void Start(WorkerLinkSink& sink) override {
      thread_ = std::thread([this, &sink] { Deliver(sink); });
    }
    void Send(std::string message) override {
      {
        const std::lock_guard lock(pair_->mutex_);
        if (pair_->closed_.has_value()) return;
        if (side_ == 0 && pair_->fails_ != nullptr && pair_->fails_(message))
          throw std::bad_alloc();
        pair_->inboxes_[1 - side_].messages.push_back(std::move(message));
      }
      pair_->changed_.notify_all();
    }
    void Close(const absl::Status& why) override { pair_->Close(why); }
    std::string peer() const override {
      const std::lock_guard lock(pair_->mutex_);
      if (pair_->nameless_) throw std::bad_alloc();
      return pair_->name_;
    }

   private:
    void Deliver(WorkerLinkSink& sink) {
      std::unique_lock lock(pair_->mutex_);
      Inbox& inbox = pair_->inboxes_[side_];
      while (true) {
        pair_->changed_.wait(lock, [&] {
          return stopped_ || !inbox.messages.empty() || pair_->closed_.has_value();
        });
        if (stopped_) return;
        if (inbox.messages.empty()) break;
        std::string message = std::move(inbox.messages.front());
        inbox.messages.pop_front();
        const Fault fault = inbox.fault;
        lock.unlock();
        if (fault == nullptr || fault(message)) sink.OnMessage(std::move(message));
        lock.lock();
      }
      const absl::Status why = *pair_->closed_;
      lock.unlock();
      sink.OnClosed(why);
    }

    const std::shared_ptr<LinkedPair> pair_;
    const int side_;
    bool stopped_ = false;
    std::thread thread_;
  };

  void SetFault(int side, Fault fault) {
    const std::lock_guard lock(mutex_);
    inboxes_[side].fault = std::move(fault);
  }
  void Close(const absl::Status& why) {
    {
      const std::lock_guard lock(mutex_);
      if (!closed_.has_value()) closed_ = why;
    }
    changed_.notify_all();
  }

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::array<Inbox, 2> inboxes_;
  std::function<bool(const std::string&)> fails_;
  bool nameless_ = false;
  std::optional<absl::Status> closed_;
};

// Workers whose links a test adds.
class AddedWorkers final : public WorkerSource {
 public:
  void Start(WorkerSourceSink& sink) override {
    const std::lock_guard lock(mutex_);
    sink_ = &sink;
    for (auto& link : waiting_) sink_->OnWorker(std::move(link));
    waiting_.clear();
  }
  void Report(const std::string& missing) override {
    const std::lock_guard lock(mutex_);
    reports_.push_back(missing);
    changed_.notify_all();
    if (last_.empty() || missing.find(last_) == std::string::npos || sink_ == nullptr) return;
    sink_->OnStopped(absl::CancelledError("the test ends"));
    last_.clear();
  }
  void Stop(const absl::Status& why) override {
    const std::lock_guard lock(mutex_);
    sink_ = nullptr;
    stopped_ = why;
  }

  void Add(std::unique_ptr<WorkerLink> link) {
    const std::lock_guard lock(mutex_);
    if (sink_ != nullptr) {
      sink_->OnWorker(std::move(link));
    } else if (stopped_.has_value()) {
      link->Close(*stopped_);
    } else {
      waiting_.push_back(std::move(link));
    }
  }
  // No more will come. Once it was started.
  void End(const absl::Status& why) {
    const std::lock_guard lock(mutex_);
    sink_->OnStopped(why);
  }
  // No more will come once a report has this text.
  void EndAt(const std::string& text) {
    const std::lock_guard lock(mutex_);
    last_ = text;
  }
  void ForgetReports() {
    const std::lock_guard lock(mutex_);
    reports_.clear();
  }
  // Waits for a report with this text, past or to come; false: none came within a minute.
  bool WaitForReport(const std::string& text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      for (const std::string& report : reports_) {
        if (report.find(text) != std::string::npos) return true;
      }
      return false;
    });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  WorkerSourceSink* sink_ = nullptr;
  std::optional<absl::Status> stopped_;
  std::vector<std::unique_ptr<WorkerLink>> waiting_;
  std::vector<std::string> reports_;
  std::string last_;  // see EndAt
};

// A worker's end of a link whose messages the test writes.
class ScriptedWorker final : private WorkerLinkSink {
 public:
  explicit ScriptedWorker(std::unique_ptr<WorkerLink> link) : link_(std::move(link)) {
    link_->Start(*this);
  }
  ~ScriptedWorker() override { link_.reset(); }

  void Say(std::string message) { link_->Send(std::move(message)); }
  // The next message that `wanted` takes; nothing: none came within a minute.
  std::optional<std::string> Hear(const std::function<bool(const std::string&)>& wanted) {
    std::unique_lock lock(mutex_);
    std::optional<std::string> heard;
    changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      while (!messages_.empty() && !heard.has_value()) {
        if (wanted(messages_.front())) heard = std::move(messages_.front());
        messages_.pop_front();
      }
      return heard.has_value() || closed_.has_value();
    });
    return heard;
  }
  // How the coordinator closed the link; INTERNAL: it did not within a minute.
  absl::Status WaitClosed() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::minutes(1), [&] { return closed_.has_value(); });
    return closed_.value_or(absl::InternalError("the link is open"));
  }

 private:
  void OnMessage(std::string message) override {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    changed_.notify_all();
  }
  void OnClosed(const absl::Status& why) override {
    const std::lock_guard lock(mutex_);
    closed_ = why;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> messages_;
  std::optional<absl::Status> closed_;
  std::unique_ptr<WorkerLink> link_;  // the last: it calls until it is destroyed
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_LINKED_WORKERS_H_

// A daemon whose worker's moments a test can choose (orders.h): the linker hands the calls by which
// it dials its coordinator, and opens what carries messages between ranks, to the functions at the
// end of this file (--wrap, CMakeLists.txt). All else is the program that users run.
//
// It says on standard output which rank it hosts ("fault_rank 2"; -1 when it dials, with how often
// it did: "fault_dialled 1"), and which ranks have which sequence: "fault_sequence 7 home 2 ring 2
// 3".

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/ring/wire/carrier.h"
#include "engine/workers/control_messages.h"
#include "engine/workers/worker_link.h"
#include "server/config/server_config.h"
#include "tests/integration/ring_faults/orders.h"

namespace annulus::testing {
namespace {

// What a worker knows of its steps from their plans. Thread-safe.
class Steps {
 public:
  // Returns whether the step computes rows again.
  bool Begin(const wire::Run& run) {
    wire::StepPlan plan;
    if (!plan.ParseFromString(run.plan())) return false;
    std::lock_guard lock(mutex_);
    if (run.epoch() != epoch_) repairs_.clear();
    epoch_ = run.epoch();
    for (const wire::SequenceUpdate& update : plan.updates()) {
      if (!update.has_terms()) continue;
      Orders::Get().Say(absl::StrCat("fault_sequence ", update.sequence(), " home ",
                                     update.terms().home(), " ring ",
                                     absl::StrJoin(update.terms().ring(), " ")));
    }
    bool repairs = false;
    for (const wire::PlanItem& item : plan.items()) {
      int& end = ends_[item.sequence()];
      repairs = repairs || (!item.sampled() && item.end() <= end);
      end = std::max(end, item.end());
    }
    for (const uint64_t sequence : plan.ended()) ends_.erase(sequence);
    if (repairs) repairs_.insert(run.step());
    return repairs;
  }
  bool Repairs(const wire::StepResult& result) {
    std::lock_guard lock(mutex_);
    return result.epoch() == epoch_ && repairs_.count(result.step()) > 0;
  }

 private:
  std::mutex mutex_;
  uint64_t epoch_ = 0;
  std::set<uint64_t> repairs_;    // steps of the epoch
  std::map<uint64_t, int> ends_;  // [sequence] of the rows that were planned
};

class WatchedLink final : public WorkerLink, private WorkerLinkSink {
 public:
  explicit WatchedLink(std::unique_ptr<WorkerLink> link) : link_(std::move(link)) {
    static std::atomic<int> dialled{0};
    Orders::Get().Say(absl::StrCat("fault_rank -1\nfault_dialled ", ++dialled));
  }

  void Start(WorkerLinkSink& sink) override {
    sink_ = &sink;
    link_->Start(*this);
  }
  void Send(std::string message) override {
    const absl::StatusOr<wire::FromWorker> said = DecodeFromWorker(message);
    if (said.ok() && said->has_wire_ready()) Orders::Get().Pass(Moment::kWires);
    if (said.ok() && said->has_result()) PassResult(said->result());
    link_->Send(std::move(message));
  }
  void Close(const absl::Status& why) override { link_->Close(why); }
  std::string peer() const override { return link_->peer(); }

 private:
  void OnMessage(std::string message) override {
    const absl::StatusOr<wire::ToWorker> heard = DecodeToWorker(message);
    if (heard.ok() && heard->has_assign()) {
      Orders::Get().Say(absl::StrCat("fault_rank ", heard->assign().first_rank()));
    }
    if (heard.ok() && heard->has_form()) Orders::Get().Pass(Moment::kForm);
    if (heard.ok() && heard->has_run()) {
      const bool repairs = steps_.Begin(heard->run());
      Orders::Get().Pass(repairs ? Moment::kRepair : Moment::kPlanned);
    }
    sink_->OnMessage(std::move(message));
  }
  void OnClosed(const absl::Status& why) override { sink_->OnClosed(why); }

  void PassResult(const wire::StepResult& result) {
    if (steps_.Repairs(result)) Orders::Get().Pass(Moment::kRepaired);
    for (const std::string& bytes : result.results()) {
      wire::RankResult rank;
      if (!rank.ParseFromString(bytes) || rank.tokens().empty()) continue;
      Orders::Get().Pass(Moment::kSampled);
    }
  }

  Steps steps_;
  WorkerLinkSink* sink_ = nullptr;
  const std::unique_ptr<WorkerLink> link_;  // the last: it calls until it is destroyed
};

class WatchedCarrier final : public Carrier {
 public:
  explicit WatchedCarrier(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}

  void Start(CarrierSink& sink) override { carrier_->Start(sink); }
  const std::string& address() const override { return carrier_->address(); }
  absl::Status Connect(int own, std::span<const std::string> addresses) override {
    return carrier_->Connect(own, addresses);
  }
  void Send(int peer, const FrameHeaderBytes& header, const RingParts& parts, Done done) override {
    Orders::Get().Pass(Moment::kLayer);
    const std::optional<int> flip = Orders::Get().TakeFlip();
    if (!flip.has_value()) return carrier_->Send(peer, header, parts, std::move(done));
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    for (size_t i = 0; i < parts.size(); ++i) {
      bytes->insert(bytes->end(), parts[i].data, parts[i].data + parts[i].bytes);
    }
    FrameHeaderBytes flipped = header;
    std::byte& one = bytes->empty() ? flipped.back() : (*bytes)[bytes->size() / 2];
    one ^= std::byte{1};
    Orders::Get().Say(absl::StrCat("fault ", *flip, " flipped"));
    carrier_->Send(peer, flipped, RingParts{RingPart{bytes->data(), bytes->size()}},
                   [bytes, done = std::move(done)](const absl::Status& status) { done(status); });
  }
  void Receive(uint64_t frame, std::vector<RingPlace> places, Done done) override {
    carrier_->Receive(frame, std::move(places), std::move(done));
  }
  void Drop(uint64_t frame) override { carrier_->Drop(frame); }

 private:
  const std::unique_ptr<Carrier> carrier_;
};

}  // namespace

// The names are those of server::DialCoordinator and OpenUcxCarrier to the linker.

absl::StatusOr<std::unique_ptr<WorkerLink>> RealDial(const server::ServerConfig& config) __asm__(
    "__real__ZN7annulus6server15DialCoordinatorERKNS0_12ServerConfigE");
absl::StatusOr<std::unique_ptr<WorkerLink>> WatchedDial(const server::ServerConfig& config) __asm__(
    "__wrap__ZN7annulus6server15DialCoordinatorERKNS0_12ServerConfigE");
absl::StatusOr<std::unique_ptr<Carrier>> RealOpen(const std::string& devices) __asm__(
    "__real__ZN7annulus14OpenUcxCarrierERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
absl::StatusOr<std::unique_ptr<Carrier>> WatchedOpen(const std::string& devices) __asm__(
    "__wrap__ZN7annulus14OpenUcxCarrierERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");

absl::StatusOr<std::unique_ptr<WorkerLink>> WatchedDial(const server::ServerConfig& config) {
  absl::StatusOr<std::unique_ptr<WorkerLink>> link = RealDial(config);
  if (!link.ok()) return link;
  return std::make_unique<WatchedLink>(*std::move(link));
}

absl::StatusOr<std::unique_ptr<Carrier>> WatchedOpen(const std::string& devices) {
  absl::StatusOr<std::unique_ptr<Carrier>> carrier = RealOpen(devices);
  if (!carrier.ok()) return carrier;
  return std::make_unique<WatchedCarrier>(*std::move(carrier));
}

}  // namespace annulus::testing

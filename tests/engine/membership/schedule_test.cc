// Rings that workers join, leave, forget and haunt, by schedules that a seed draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/membership/membership.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeat = 250ms;
constexpr auto kTick = 10ms;
constexpr auto kMostDelay = 80ms;  // of a message, and of what a worker does for it
// The last fault may be one that only silence tells.
constexpr auto kBoundOfEpochs = 3s;

struct ToWorker {
  enum Kind { kAssign, kForm, kRun, kAbort } kind = kAssign;
  uint64_t epoch = 0;
  uint64_t step = 0;
  std::set<int> reads = {};   // rows that the worker must hold
  std::set<int> writes = {};  // rows that it holds afterwards
};
struct FromWorker {
  enum Kind { kHello, kBeat, kWires, kReady, kResult } kind = kBeat;
  uint64_t epoch = 0;
  uint64_t step = 0;
};
template <typename Message>
struct Sent {
  SteadyTime due;
  Message message;
};

// A worker as ServeRanks is one, and the line to it.
struct Worker {
  MemberId id = 0;
  std::string name;
  int ranks = 1;
  bool paused = false;    // does nothing, and its line stands
  bool hangs = false;     // says that it is alive, and does nothing else
  bool cut = false;       // its line loses everything
  bool gone = false;      // crashed, or left: its line closes when what it said was read
  SteadyTime beat;        // the next one
  uint64_t assigned = 0;  // its first epoch; 0: none
  uint64_t joined = 0;    // the epoch that it is in
  bool ready = false;
  uint64_t steps = 0;  // that have ended on it
  std::set<int> rows;  // that it holds
  std::deque<Sent<ToWorker>> inbox;
  std::deque<Sent<FromWorker>> outbox;
};

class Schedule {
 public:
  explicit Schedule(uint32_t seed) : random_(seed) {
    MembershipOptions options;
    options.first_rank = first_rank_ = static_cast<int>(Draw(2));
    const int workers = 1 + static_cast<int>(Draw(3));
    std::vector<int> sizes;
    for (int i = 0; i < workers; ++i) sizes.push_back(1 + static_cast<int>(Draw(2)));
    options.ranks = options.first_rank;
    for (const int size : sizes) options.ranks += size;
    options.silence = 2s;
    options.step_silence = 2500ms;
    options.step_limit = 1h;
    options.hello_timeout = 10s;
    options.forming_timeout = 1s;
    options.replacement_timeout = Draw(2) == 0 ? 300ms : 60'000ms;
    ring_ = std::make_unique<Membership>(options);
    held_.resize(static_cast<size_t>(options.ranks));
    for (const int size : sizes) Dial(size);
  }

  void Run() {
    for (int turn = 0; turn < 1000 && !::testing::Test::HasFailure(); ++turn) {
      if (Draw(25) == 0) Fault();
      Turn();
    }
    EndFaults();
    const SteadyTime last = now_;
    while (!ring_->is_up() && now_ < last + kBoundOfEpochs) Turn();
    EXPECT_TRUE(ring_->is_up()) << "in epoch " << ring_->epoch() << ", "
                                << (ring_->vacant_since().has_value() ? "vacant" : "full");
    const int emitted = emitted_;
    for (int turn = 0; turn < 400; ++turn) Turn();
    EXPECT_GT(emitted_, emitted) << "no step goes on";
  }
  int epochs() const { return static_cast<int>(ring_->epoch()); }
  int emitted() const { return emitted_; }
  int lost_rows() const { return lost_rows_; }
  int left_out() const { return left_out_; }
  int hung() const { return hung_; }

 private:
  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_()) % below; }
  SteadyTime Soon() { return now_ + kTick * Draw(kMostDelay / kTick + 1); }

  // ---- the world

  void Dial(int ranks) {
    auto worker = std::make_unique<Worker>();
    worker->id = ring_->Dial(now_);
    worker->name = "worker " + std::to_string(worker->id);
    worker->ranks = ranks;
    worker->beat = now_ + kBeat;
    Say(*worker, {FromWorker::kHello});
    workers_[worker->id] = std::move(worker);
  }
  // A line keeps its order.
  template <typename Message>
  void Post(std::deque<Sent<Message>>& line, Message message) {
    const SteadyTime due = line.empty() ? Soon() : std::max(line.back().due, Soon());
    line.push_back({due, std::move(message)});
  }
  void Say(Worker& worker, FromWorker message) {
    if (!worker.cut) Post(worker.outbox, message);
  }
  void Tell(MemberId id, ToWorker message) {
    if (!workers_.at(id)->cut) Post(workers_.at(id)->inbox, std::move(message));
  }

  void Fault() {
    std::vector<Worker*> all;
    for (const auto& [id, worker] : workers_) all.push_back(worker.get());
    Worker* const one = all.empty() ? nullptr : all[Draw(static_cast<uint32_t>(all.size()))];
    switch (Draw(7)) {
      case 0:
        return Dial(1 + static_cast<int>(Draw(2)));
      case 1:
        if (one != nullptr) one->gone = true;
        return;
      case 2:
        if (one != nullptr) one->cut = true;
        return;
      case 3:
        if (one != nullptr) one->paused = !one->paused;
        return;
      case 4:  // what it says comes twice
        if (one != nullptr && !one->outbox.empty()) one->outbox.push_front(one->outbox.front());
        return;
      case 5:
        if (one != nullptr) one->hangs = !one->hangs;
        return;
      default:  // a step fails somewhere
        fails_ = true;
    }
  }

  // Everybody goes on, but one host of half of the rings, and there is a spare of each size.
  void EndFaults() {
    for (const auto& [id, worker] : workers_) {
      worker->paused = worker->hangs = false;
      if (worker->cut) worker->gone = true;
    }
    const std::vector<MemberId> hosts = ring_->Hosts();
    if (!hosts.empty() && Draw(2) == 0) {
      workers_.at(hosts[Draw(static_cast<uint32_t>(hosts.size()))])->hangs = true;
    }
    fails_ = false;
    // A ring that never began lacks at most 6 ranks.
    const size_t most = std::max<size_t>(ring_->seats().size(), 6) + 1;
    for (size_t i = 0; i < most; ++i) Dial(1);
    for (size_t i = 0; i < most; ++i) Dial(2);
  }

  void Turn() {
    now_ += kTick;
    for (auto worker = workers_.begin(); worker != workers_.end();) {
      Live(*worker->second);
      Listen(*worker->second);
      const bool over = ring_->role(worker->first) == Membership::Role::kGone;
      worker = over ? workers_.erase(worker) : std::next(worker);
    }
    Coordinate();
  }

  // ---- a worker

  void Live(Worker& worker) {
    if (worker.gone || worker.paused) return;
    if (worker.beat <= now_) {
      worker.beat = now_ + kBeat;
      Say(worker, {FromWorker::kBeat, 0, worker.steps});
    }
    while (!worker.hangs && !worker.inbox.empty() && worker.inbox.front().due <= now_) {
      const ToWorker message = worker.inbox.front().message;
      worker.inbox.pop_front();
      Obey(worker, message);
    }
  }

  void Obey(Worker& worker, const ToWorker& message) {
    SCOPED_TRACE(::testing::Message() << worker.name << " in epoch " << worker.joined);
    switch (message.kind) {
      case ToWorker::kAssign:
        EXPECT_EQ(worker.assigned, 0u) << "two seats";
        worker.assigned = message.epoch;
        return Say(worker, {FromWorker::kWires, message.epoch});
      case ToWorker::kForm:
        EXPECT_EQ(message.epoch, worker.joined == 0 ? worker.assigned : worker.joined + 1);
        worker.joined = message.epoch;
        if (!std::exchange(worker.ready, true)) Say(worker, {FromWorker::kReady});
        return;
      case ToWorker::kRun:
        EXPECT_EQ(message.epoch, worker.joined) << "a step crosses epochs";
        for (const int row : message.reads) {
          EXPECT_TRUE(worker.rows.contains(row)) << "row " << row << " is read, and was lost";
        }
        worker.rows.insert(message.writes.begin(), message.writes.end());
        ++worker.steps;
        return Say(worker, {FromWorker::kResult, message.epoch, message.step});
      case ToWorker::kAbort:
        EXPECT_EQ(message.epoch, worker.joined) << "an end crosses epochs";
        return Say(worker, {FromWorker::kWires, worker.joined + 1});
    }
  }

  // ---- the coordinator: as RingCrew and RemoteRanks, without their threads

  void Listen(Worker& worker) {
    while (!worker.outbox.empty() && worker.outbox.front().due <= now_) {
      const FromWorker message = worker.outbox.front().message;
      worker.outbox.pop_front();
      if (ring_->role(worker.id) == Membership::Role::kGone) return;
      ring_->Hear(worker.id, now_);
      if (!Hear(worker, message).ok()) return Lose(worker.id);
    }
    if (worker.gone && worker.outbox.empty()) Lose(worker.id);
  }

  absl::Status Hear(Worker& worker, const FromWorker& message) {
    switch (message.kind) {
      case FromWorker::kHello: {
        const absl::Status welcome = ring_->Hello(worker.id, worker.name, worker.ranks);
        if (welcome.ok()) Fill();
        return welcome;
      }
      case FromWorker::kBeat:
        return ring_->Advance(worker.id, {.advances = message.step}, now_).status();
      case FromWorker::kWires:
        return ring_->Wires(worker.id, message.epoch).status();
      case FromWorker::kReady:
        return ring_->Ready(worker.id);
      case FromWorker::kResult: {
        const absl::StatusOr<bool> due =
            ring_->Result(worker.id, message.epoch, message.step, now_);
        if (!due.ok() || !*due) return due.status();
        EXPECT_EQ(message.epoch, ring_->epoch()) << "a result crosses epochs";
        EXPECT_TRUE(ring_->IsInEpoch(worker.id));
        EXPECT_FALSE(ring_->aborted()) << "a result of an epoch that is over";
        answered_.insert(worker.id);
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  // Those in the epoch.
  bool AreReady() const {
    const std::vector<MemberId> hosts = ring_->Hosts();
    return std::all_of(hosts.begin(), hosts.end(),
                       [this](MemberId id) { return !ring_->IsInEpoch(id) || ring_->IsReady(id); });
  }

  void Lose(MemberId id) {
    if (ring_->SeatOf(id) != nullptr) broken_ = true;
    ring_->Leave(id, now_);
    Fill();
  }
  void Fill() {
    for (const MemberId id : ring_->Fill(now_)) {
      Tell(id, {ToWorker::kAssign, ring_->next_epoch()});
    }
  }

  void Coordinate() {
    for (const Membership::Late& late : ring_->FindLate(now_)) {
      if (absl::StrContains(late.why.message(), "no progress")) ++hung_;
      Lose(late.id);
    }
    if (runs_ && std::exchange(fails_, false)) broken_ = true;
    // A spare may have heard of its seat before the epoch ends.
    if (!forms_ && broken_ && ring_->epoch() > 0 && Draw(4) == 0) {
      for (const MemberId id : ring_->Abort(now_)) Tell(id, {ToWorker::kAbort, ring_->epoch()});
      forms_ = true;
      runs_ = false;
    }
    if (ring_->CanForm(now_)) {
      const uint64_t epoch = ring_->Form(now_);
      for (const Membership::Seat& seat : ring_->seats()) {
        EXPECT_EQ(seat.left_out, seat.host == 0);
        left_out_ += seat.left_out ? 1 : 0;
      }
      for (const MemberId id : ring_->Hosts()) Tell(id, {ToWorker::kForm, epoch});
      broken_ = forms_ = false;
    }
    if (runs_ && answered_.size() == awaited_) EndStep();
    if (!runs_) {
      for (const int32_t rank : ring_->TakeLost()) {
        lost_rows_ += static_cast<int>(held_[static_cast<size_t>(rank)].size());
        held_[static_cast<size_t>(rank)].clear();
      }
    }
    // A spare has taken a seat that was left out.
    if (!runs_ && !forms_ && ring_->epoch() > 0 && AreReady() && !ring_->is_up()) broken_ = true;
    if (ring_->is_up()) ring_->Found();
    if (!runs_ && !forms_ && !broken_ && ring_->is_up()) BeginStep();
    // Whoever waits, waits for somebody, or for a time.
    EXPECT_TRUE(runs_ || ring_->is_up() || ring_->vacant_since().has_value() ||
                !ring_->is_complete() || ring_->NextLate().has_value());
  }

  // Writes the next row on all ranks, and those that were lost.
  void BeginStep() {
    runs_ = true;
    answered_.clear();
    const uint64_t step = ring_->BeginStep(now_);
    awaited_ = 0;
    for (const Membership::Seat& seat : ring_->seats()) {
      if (seat.left_out) continue;
      ++awaited_;
      ToWorker run{ToWorker::kRun, ring_->epoch(), step};
      // All ranks of a worker are lost together.
      run.reads = held_[static_cast<size_t>(seat.first_rank)];
      for (int row = 0; row <= emitted_; ++row) {
        if (!run.reads.contains(row)) run.writes.insert(row);
      }
      Tell(seat.host, std::move(run));
    }
  }
  void EndStep() {
    runs_ = false;
    for (size_t rank = 0; rank < held_.size(); ++rank) {
      const int at = static_cast<int>(rank);
      if (at >= first_rank_ && ring_->SeatOfRank(at).left_out) continue;
      for (int row = 0; row <= emitted_; ++row) held_[rank].insert(row);
    }
    ++emitted_;
  }

  std::mt19937 random_;
  SteadyTime now_{std::chrono::hours(1)};
  std::unique_ptr<Membership> ring_;
  std::map<MemberId, std::unique_ptr<Worker>> workers_;
  std::vector<std::set<int>> held_;  // [rank] rows that the coordinator may read
  std::set<MemberId> answered_;      // the step that runs
  size_t awaited_ = 0;               // how many hosts it has
  int first_rank_ = 0;
  int left_out_ = 0;  // seats, by the epochs that began
  int hung_ = 0;      // workers that were lost because of their steps
  bool broken_ = false;
  bool forms_ = false;  // the epoch is over
  bool runs_ = false;
  bool fails_ = false;
  int emitted_ = 0;
  int lost_rows_ = 0;
};

TEST(MembershipScheduleTest, EveryScheduleOfFaultsLeadsToAnEpochThatLasts) {
  const std::vector<uint32_t> all = testing::SeedsFrom(1, 1'000'000);
  const std::vector<uint32_t> seeds = testing::Thinned(all, kSanitized ? 200 : 1000);
  int64_t epochs = 0;
  int64_t emitted = 0;
  int64_t lost_rows = 0;
  int64_t left_out = 0;
  int64_t hung = 0;
  for (const uint32_t seed : seeds) {
    SCOPED_TRACE(::testing::Message() << "schedule " << seed);
    Schedule schedule(seed);
    schedule.Run();
    if (HasFailure()) return;
    epochs += schedule.epochs();
    emitted += schedule.emitted();
    lost_rows += schedule.lost_rows();
    left_out += schedule.left_out();
    hung += schedule.hung();
  }
  const auto schedules = static_cast<int64_t>(seeds.size());
  // The faults hit what they should.
  EXPECT_GT(epochs, 2 * schedules);
  EXPECT_GT(emitted, 10 * schedules);
  EXPECT_GT(lost_rows, 5 * schedules);
  EXPECT_GT(left_out, schedules / 10);
  EXPECT_GT(hung, schedules / 100);
}

}  // namespace
}  // namespace annulus

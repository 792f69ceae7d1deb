// A ring of real processes whose workers meet faults at chosen moments. Every answer has the
// tokens, log probabilities and digest of a ring in one process, within a bound, and whoever is
// left holds no more than before.
//   ANNULUS_FAULTS=1200        how many faults of both tests, as in tests/nightly.sh; 20 by default
//   ANNULUS_TEST_SEED=SEED     others; both are printed
//   ANNULUS_FAULT_SLACK=3      multiplies the bounds of time, and for how long a worker may be
//                              silent, on slow machines and with sanitizers
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/ring/wire/ucx_library.h"
#include "tests/integration/ring_answer.h"
#include "tests/integration/ring_faults/faulty_ring.h"
#include "tests/integration/ring_faults/worker_network.h"
#include "tests/support/eventually.h"
#include "tests/support/test_data.h"
#include "tests/support/thinned.h"

namespace annulus::server {
namespace {

using std::chrono::steady_clock;
using ::testing::HasSubstr;

enum class Fault { kKill, kStop, kFlip, kDrop, kUnplug };
enum class When { kPlanned, kLayer, kSampled, kForming, kRepairing };
enum class Victim { kHome, kHolder, kBystander, kTwo };

constexpr const char* kFaultNames[] = {"SIGKILL", "SIGSTOP, then SIGCONT", "a flipped bit",
                                       "packets dropped", "link down"};
constexpr const char* kWhenNames[] = {"planned", "in a layer", "sampled", "forming", "repairing"};
constexpr const char* kVictimNames[] = {"the home", "a holder of pages", "a bystander",
                                        "the home and a holder"};

struct Cell {
  Fault fault;
  When when;
  Victim victim;

  bool in_recovery() const { return when == When::kForming || when == When::kRepairing; }
  std::string text() const {
    return absl::StrCat(kFaultNames[static_cast<int>(fault)], ", ",
                        kWhenNames[static_cast<int>(when)], ", ",
                        kVictimNames[static_cast<int>(victim)]);
  }
};

std::vector<Cell> CellsOf(const std::vector<Fault>& faults) {
  std::vector<Cell> cells;
  for (const Fault fault : faults) {
    for (const When when :
         {When::kPlanned, When::kLayer, When::kSampled, When::kForming, When::kRepairing}) {
      for (const Victim victim :
           {Victim::kHome, Victim::kHolder, Victim::kBystander, Victim::kTwo}) {
        cells.push_back({fault, when, victim});
      }
    }
  }
  return cells;
}

double Slack() {
  const char* const slack = std::getenv("ANNULUS_FAULT_SLACK");
  return slack == nullptr ? 1 : std::stod(slack);
}

// A client that follows an answer, on a thread of its own.
class Client {
 public:
  Client(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerationSpec& spec)
      : thread_([this, channel, spec] {
          answer_ = StreamAnswer(channel, spec, [this](size_t tokens) { Note(tokens); });
          Note(std::string::npos);
        }) {}
  ~Client() {
    if (thread_.joinable()) thread_.join();
  }

  // Whether so many tokens have come within kRingLimit, and more are to come.
  bool WaitFor(size_t tokens) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kRingLimit, [&] { return tokens_ >= tokens; }) &&
           tokens_ != std::string::npos;
  }
  const StreamedAnswer& End() {
    thread_.join();
    return answer_;
  }

 private:
  void Note(size_t tokens) {
    std::lock_guard lock(mutex_);
    tokens_ = tokens;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t tokens_ = 0;  // npos: it has ended
  StreamedAnswer answer_;
  std::thread thread_;
};

// What a process holds.
class Use {
 public:
  explicit Use(const Program& program)
      : descriptors_(program.Descriptors()),
        threads_(program.Threads()),
        resident_(program.ResidentMemory()) {}

  void ExpectNoMoreThan(const Use& before, const std::string& name) const {
    constexpr size_t kMoreDescriptors = 8;
    constexpr size_t kMoreThreads = 4;
    constexpr size_t kMoreBytes = size_t{16} << 20;
    EXPECT_LE(descriptors_, before.descriptors_ + kMoreDescriptors) << name;
    EXPECT_LE(threads_, before.threads_ + kMoreThreads) << name;
    EXPECT_LE(resident_, before.resident_ + kMoreBytes) << name;
  }
  // The larger of each.
  void Raise(const Use& other) {
    descriptors_ = std::max(descriptors_, other.descriptors_);
    threads_ = std::max(threads_, other.threads_);
    resident_ = std::max(resident_, other.resident_);
  }
  std::string text() const {
    return absl::StrCat(descriptors_, " descriptors, ", threads_, " threads, ", resident_ >> 10,
                        " KiB");
  }

 private:
  size_t descriptors_;
  size_t threads_;
  size_t resident_;
};

class RingFaultsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadUcx().ok()) GTEST_SKIP() << "libucx0 is not installed";
    const auto model = testing::TestData("models/stories260K");
    if (!model.has_value()) GTEST_SKIP() << "the model stories260K is not here";
    flags_ = {"--model", model->string(), "--page-tokens", "16"};
  }

  // Of the coordinator, and of a daemon with all ranks. A sequence of up to 256 tokens lies on two
  // ranks, a longer one on four. Pages of earlier answers soon fill all that memory.
  std::vector<std::string> CoordinatorFlags() const {
    return {"--tokens-per-rank", "128", "--kv-memory", "8MiB"};
  }
  std::vector<std::string> RingFlags() const {
    std::vector<std::string> flags = CoordinatorFlags();
    const auto silence = static_cast<int>(2'000 * Slack());
    flags.insert(flags.end(), {"--worker-silence", absl::StrCat(silence, "ms")});
    return flags;
  }

  // Of a prompt of so many tokens.
  static v1::GenerationSpec SpecOf(int prompt, int variant) {
    std::mt19937 random(static_cast<uint32_t>(variant));
    v1::GenerationSpec spec;
    for (int i = 0; i < prompt; ++i) {
      spec.mutable_token_ids()->add_ids(static_cast<int>(3 + random() % 500));
    }
    spec.set_ignore_cache(true);  // else it would run where its beginning is
    v1::SamplingParams& sampling = *spec.mutable_sampling();
    sampling.set_temperature(0.8F);
    sampling.set_seed(static_cast<uint64_t>(variant));
    if (variant % 2 == 1) sampling.set_frequency_penalty(0.5F);
    sampling.set_ignore_eos(true);
    sampling.set_max_tokens(kTokens);
    AskForAllOfAnswer(spec);
    return spec;
  }

  void Try(int faults, std::vector<Cell> cells, WorkerNetwork* network);

  static constexpr int kTokens = 160;
  static constexpr int kFaultsOfALine = 25;  // that a long run prints
  std::vector<std::string> flags_;
};

// What a run of many faults needs.
class FaultRun {
 public:
  // `network`: of the ring's workers; null: they have none of their own. `flags`: of a daemon with
  // all ranks.
  FaultRun(FaultyRing& ring, WorkerNetwork* network, std::vector<v1::GenerationSpec> on_two,
           std::vector<v1::GenerationSpec> on_four, std::vector<std::string> flags)
      : ring_(ring), network_(network), specs_{std::move(on_two), std::move(on_four)} {
    flags.insert(flags.end(), {"--ranks", absl::StrCat(FaultyRing::kRanks), "--threads", "1"});
    Daemon one(flags);
    EXPECT_TRUE(one.WaitUntilReady()) << one.output();
    for (size_t width = 0; width < specs_.size(); ++width) {
      for (const v1::GenerationSpec& spec : specs_[width]) {
        expected_[width].push_back(AskFor(PlainChannel(one.address()), spec));
      }
    }
  }

  // All rows of two answers at once, without a fault: no repair computes more.
  void MeasureWhole() {
    for (size_t width = 0; width < specs_.size(); ++width) {
      const auto begin = steady_clock::now();
      Client a(ring_.channel(), specs_[width][0]);
      Client b(ring_.channel(), specs_[width][1]);
      EXPECT_EQ(a.End().answer, expected_[width][0]);
      EXPECT_EQ(b.End().answer, expected_[width][1]);
      const std::chrono::duration<double> taken = steady_clock::now() - begin;
      whole_seconds_ = std::max(whole_seconds_, taken.count());
    }
  }
  double whole_seconds() const { return whole_seconds_; }

  void Try(const Cell& cell, std::mt19937_64& random);
  void PrintPauses() const;

 private:
  struct Roles {
    int home = 0;
    int holder = 0;
    int bystander = -1;  // there is none
  };

  Roles FindRoles();
  int StopAt(const Cell& cell, WatchedWorker& observer, std::mt19937_64& random);
  void Strike(const Cell& cell, const Roles& roles, WatchedWorker& observer, int stop);
  void Silence(Fault fault, WatchedWorker& victim, bool silent);
  void SilenceForAWhile(Fault fault, const std::vector<WatchedWorker*>& victims,
                        WatchedWorker& observer, int stop);
  double Bound(const Cell& cell) const;

  FaultyRing& ring_;
  WorkerNetwork* const network_;
  const std::array<std::vector<v1::GenerationSpec>, 2> specs_;  // on two ranks, on four
  std::array<std::vector<Answer>, 2> expected_;
  double whole_seconds_ = 0;
  steady_clock::time_point struck_;
  std::map<Fault, std::vector<double>> pauses_;
};

// Of the newest two sequences that whose home is at a worker: at most one has the coordinator's
// rank for its home.
FaultRun::Roles FaultRun::FindRoles() {
  WatchedWorker& witness = ring_.HostOf(1);
  std::vector<SequenceRoles> all = witness.sequences();
  Roles roles;
  for (size_t i = all.size() - std::min<size_t>(2, all.size()); i < all.size(); ++i) {
    if (all[i].home == 0) continue;
    roles = {all[i].home};
    for (int rank = 1; rank < FaultyRing::kRanks; ++rank) {
      const bool holds =
          std::find(all[i].ring.begin(), all[i].ring.end(), rank) != all[i].ring.end();
      if (!holds) roles.bystander = rank;
      if (holds && rank != roles.home) roles.holder = rank;
    }
  }
  return roles;
}

// Returns the serial of the stop.
int FaultRun::StopAt(const Cell& cell, WatchedWorker& observer, std::mt19937_64& random) {
  switch (cell.when) {
    case When::kPlanned:
      return observer.StopAt("planned");
    case When::kLayer:
      return observer.StopAt("layer", 1 + static_cast<int>(random() % 4));
    case When::kSampled:
      return observer.StopAt("sampled");
    case When::kForming:
      return observer.StopAt(random() % 2 == 0 ? "wires" : "form");
    case When::kRepairing:
      break;
  }
  return observer.StopAt(random() % 2 == 0 ? "repair" : "repaired");
}

void FaultRun::Silence(Fault fault, WatchedWorker& victim, bool silent) {
  if (fault == Fault::kStop) return victim.program().Signal(silent ? SIGSTOP : SIGCONT);
  ASSERT_NE(network_, nullptr);
  if (fault == Fault::kDrop) return network_->Drop(victim.program().pid(), silent);
  network_->Plug(victim.program().pid(), !silent);
}

// Whoever was silent is lost, goes on in an epoch that is over, and comes back as a spare.
void FaultRun::SilenceForAWhile(Fault fault, const std::vector<WatchedWorker*>& victims,
                                WatchedWorker& observer, int stop) {
  const int64_t before = ring_.Losses("silent");
  const auto count = static_cast<int64_t>(victims.size());
  for (WatchedWorker* const victim : victims) Silence(fault, *victim, true);
  struck_ = steady_clock::now();
  observer.Go(stop);
  EXPECT_TRUE(testing::Eventually([&] { return ring_.Losses("silent") >= before + count; }));
  for (WatchedWorker* const victim : victims) {
    const int dialled = victim->dialled();
    Silence(fault, *victim, false);
    const std::string again = absl::StrCat("fault_dialled ", dialled + 1, "\n");
    EXPECT_TRUE(victim->program().WaitForOutput(again, kRingLimit)) << victim->program().output();
  }
}

// The observer waits at the moment.
void FaultRun::Strike(const Cell& cell, const Roles& roles, WatchedWorker& observer, int stop) {
  std::vector<WatchedWorker*> victims;
  if (cell.victim == Victim::kBystander) {
    victims = {&ring_.HostOf(roles.bystander)};
  } else {
    if (cell.victim != Victim::kHolder) victims = {&observer};
    if (cell.victim != Victim::kHome) victims.push_back(&ring_.HostOf(roles.holder));
  }
  struck_ = steady_clock::now();
  if (cell.fault != Fault::kFlip && cell.fault != Fault::kKill) {
    return SilenceForAWhile(cell.fault, victims, observer, stop);
  }
  if (cell.fault == Fault::kFlip) {
    std::vector<int> flips;
    for (WatchedWorker* const victim : victims) flips.push_back(victim->Flip());
    observer.Go(stop);
    for (size_t i = 0; i < victims.size(); ++i) victims[i]->WaitFor(flips[i], "flipped");
    return;
  }
  const bool goes_on = victims[0] != &observer;
  for (WatchedWorker* const victim : victims) ring_.Kill(*victim);
  if (goes_on) observer.Go(stop);
}

double FaultRun::Bound(const Cell& cell) const {
  const double detection = cell.fault == Fault::kKill ? 1 : 3;
  return Slack() * (detection + whole_seconds_ * (cell.in_recovery() ? 2 : 1));
}

void FaultRun::Try(const Cell& cell, std::mt19937_64& random) {
  const size_t width = cell.victim == Victim::kBystander ? 0 : random() % 2;
  const size_t one = random() % specs_[width].size();
  const size_t other = random() % specs_[width].size();
  const int64_t closed = ring_.Losses("closed");
  const int64_t wire = ring_.Losses("wire");
  Client a(ring_.channel(), specs_[width][one]);
  Client b(ring_.channel(), specs_[width][other]);
  const size_t tokens = 5 + random() % 30;
  ASSERT_TRUE(a.WaitFor(tokens) && b.WaitFor(tokens));
  const Roles roles = FindRoles();
  ASSERT_TRUE(roles.home > 0 && roles.holder > 0);
  WatchedWorker& observer = ring_.HostOf(roles.home);
  const int stop = StopAt(cell, observer, random);
  int64_t killed = 0;
  if (cell.in_recovery()) {
    const bool aside = cell.when == When::kForming && roles.bystander > 0 && random() % 2 == 0;
    ring_.Kill(ring_.HostOf(aside ? roles.bystander : roles.holder));
    ++killed;
  }
  observer.WaitFor(stop, "reached");
  Strike(cell, roles, observer, stop);
  if (cell.fault == Fault::kKill) killed += cell.victim == Victim::kTwo ? 2 : 1;
  double pause = 0;
  for (const auto& [client, index] : {std::pair(&a, one), std::pair(&b, other)}) {
    const StreamedAnswer& followed = client->End();
    EXPECT_TRUE(followed.status.ok()) << followed.status.error_message();
    EXPECT_EQ(followed.answer, expected_[width][index]);
    EXPECT_GE(followed.recovered, 1);
    if (cell.when == When::kRepairing) {
      EXPECT_GE(followed.repaired, 1);
    }
    pause = std::max(pause, followed.LongestPause(struck_));
  }
  EXPECT_LE(pause, Bound(cell));
  pauses_[cell.fault].push_back(pause);
  EXPECT_EQ(ring_.Losses("closed"), closed + killed);
  if (cell.fault == Fault::kFlip) {
    EXPECT_GT(ring_.Losses("wire"), wire);
  }
}

void FaultRun::PrintPauses() const {
  for (const auto& [fault, all] : pauses_) {
    std::vector<double> pauses = all;
    std::sort(pauses.begin(), pauses.end());
    const auto at = [&pauses](double share) {
      return pauses[static_cast<size_t>(share * static_cast<double>(pauses.size() - 1))];
    };
    std::printf(
        "%-22s %4zu times; without a token for at most %.3f s (median), %.3f s (95%%), %.3f s\n",
        kFaultNames[static_cast<int>(fault)], pauses.size(), at(0.5), at(0.95), at(1));
  }
}

// How many of ANNULUS_FAULTS belong to a test: so many fifths. Without it: `few`.
int FaultsOf(int few, int fifths) {
  const char* const more = std::getenv("ANNULUS_FAULTS");
  return more != nullptr ? std::stoi(more) * fifths / 5 : few;
}

// So many of the cells, each again only after all others.
void RingFaultsTest::Try(int faults, std::vector<Cell> cells, WorkerNetwork* network) {
  std::vector<v1::GenerationSpec> on_two;
  std::vector<v1::GenerationSpec> on_four;
  for (int variant = 0; variant < 4; ++variant) {
    on_two.push_back(SpecOf(80, variant));
    on_four.push_back(SpecOf(300, variant));
  }
  FaultyRing ring(flags_, RingFlags(), network);
  ring.Restore();
  std::vector<std::string> alone = flags_;
  for (const std::string& flag : CoordinatorFlags()) alone.push_back(flag);
  FaultRun run(ring, network, on_two, on_four, alone);
  run.MeasureWhole();
  const uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  std::map<std::string, Use> uses;  // [name] of each process, when it first hosted a rank here
  for (int i = 0; i < faults && !HasFailure(); ++i) {
    const size_t at = static_cast<size_t>(i) % cells.size();
    if (at == 0) std::shuffle(cells.begin(), cells.end(), random);
    SCOPED_TRACE(::testing::Message() << "fault " << i << " of " << faults << ", ANNULUS_TEST_SEED="
                                      << seed << ": " << cells[at].text());
    run.Try(cells[at], random);
    ring.Restore();
    // What a process takes once, it has taken by then.
    if (i < 5) continue;
    const auto check = [&uses](const std::string& name, const Program& program, bool is_first) {
      const Use now(program);
      Use& before = uses.try_emplace(name, now).first->second;
      is_first ? before.Raise(now) : now.ExpectNoMoreThan(before, name);
    };
    // Its memory rises and falls by buffers of some megabytes, so what it may hold later is what it
    // has held at most after some faults.
    check("the coordinator", ring.coordinator(), i < std::min(25, faults / 2));
    if (i % kFaultsOfALine == 0) {
      std::printf("after %d faults the coordinator: %s\n", i,
                  Use(ring.coordinator()).text().c_str());
      std::fflush(stdout);
    }
    for (const auto& worker : ring.workers()) {
      if (worker->rank() > 0) check(worker->name(), worker->program(), false);
    }
  }
  std::printf("%d faults, ANNULUS_TEST_SEED=%llu; two answers without a fault take %.3f s\n",
              faults, static_cast<unsigned long long>(seed), run.whole_seconds());
  run.PrintPauses();
  const auto first = uses.find("the coordinator");
  if (first == uses.end()) return;
  std::printf("the coordinator: %s, then %s\n", first->second.text().c_str(),
              Use(ring.coordinator()).text().c_str());
}

TEST_F(RingFaultsTest, AnswersOutliveFaultsOfProcessesBitByBit) {
  Try(FaultsOf(16, 3), CellsOf({Fault::kKill, Fault::kStop, Fault::kFlip}), nullptr);
}

TEST_F(RingFaultsTest, AnswersOutliveFaultsOfTheNetworkBitByBit) {
  if (const absl::Status can = WorkerNetwork::CanBeMade(); !can.ok()) GTEST_SKIP() << can.message();
  WorkerNetwork network;
  Try(FaultsOf(4, 2), CellsOf({Fault::kDrop, Fault::kUnplug}), &network);
}

// The thread of its beats goes on.
TEST_F(RingFaultsTest, AWorkerWhoseStepHangsIsLostThoughItBeats) {
  std::vector<std::string> flags = RingFlags();
  const auto timeout = static_cast<int>(3'000 * Slack());
  flags.insert(flags.end(), {"--exchange-timeout", absl::StrCat(timeout, "ms")});
  FaultyRing ring(flags_, flags);
  ring.Restore();
  const v1::GenerationSpec spec = SpecOf(300, 1);
  const Answer expected = AskFor(ring.channel(), spec);
  Client client(ring.channel(), spec);
  ASSERT_TRUE(client.WaitFor(5));
  WatchedWorker& victim = ring.HostOf(1);
  victim.WaitFor(victim.StopAt("layer"), "reached");
  const StreamedAnswer& followed = client.End();
  EXPECT_TRUE(followed.status.ok()) << followed.status.error_message();
  EXPECT_EQ(followed.answer, expected);
  EXPECT_EQ(ring.Losses("silent"), 1);
  EXPECT_TRUE(ring.coordinator().WaitForOutput(
      absl::StrCat("its step has made no progress for ", timeout * 5 / 3, " ms"), kRingLimit))
      << ring.coordinator().output();
  EXPECT_EQ(victim.program().WaitForExit(kRingLimit), 3) << "to be restarted";
}

// Nobody waits for answers yet: the daemon waits for a worker, as before all were there.
TEST_F(RingFaultsTest, ALossInTheFirstFormingIsWaitedFor) {
  for (const char* const moment : {"wires", "form"}) {
    SCOPED_TRACE(moment);
    FaultyRing ring(flags_, RingFlags());
    WatchedWorker& first = ring.StartWorker();
    const int stop = first.StopAt(moment);
    for (int i = 2; i < FaultyRing::kRanks; ++i) ring.StartWorker();
    first.WaitFor(stop, "reached");
    ring.Kill(first);
    ASSERT_TRUE(ring.coordinator().WaitForOutput("a host for rank 1", kRingLimit))
        << ring.coordinator().output();
    EXPECT_EQ(ring.Info().state(), v1::SERVER_STATE_LOADING);
    EXPECT_THAT(ring.Info().awaited(), HasSubstr("worker \"w1\""));
    EXPECT_EQ(ring.Losses("closed"), 0) << "the engine's metrics are there once it is";
    ring.StartWorker();
    ASSERT_TRUE(ring.coordinator().WaitUntilReady()) << ring.coordinator().output();
    EXPECT_EQ(ring.Losses("closed"), 1);
    EXPECT_EQ(AskFor(ring.channel(), SpecOf(80, 1)).ids.size(), static_cast<size_t>(kTokens));
  }
}

}  // namespace
}  // namespace annulus::server

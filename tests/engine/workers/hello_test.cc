// How workers and their coordinator find each other, and who is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"
#include "tests/support/manual_clock.h"

namespace annulus {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::LinkedPair;
using testing::ManualClock;
using testing::ScriptedWorker;
using testing::WorkerThread;

class HelloTest : public testing::RecallRing {
 protected:
  HelloTest() { options_ = ring_.OptionsOf(1, kRanks); }
  ~HelloTest() override {
    if (!coordinator_.joinable()) return;
    ring_.source().End(absl::CancelledError("the test ends"));
    coordinator_.join();
  }

  // A coordinator begins to gather its workers.
  void Begin() {
    coordinator_ = std::thread([this] { made_ = ring_.Create(options_); });
    ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 2 are missing"));
  }
  absl::StatusOr<std::unique_ptr<RemoteRanks>> End() {
    coordinator_.join();
    return std::move(made_);
  }

  std::unique_ptr<ScriptedWorker> Dial(const std::string& name) {
    const auto pair = std::make_shared<LinkedPair>(name);
    auto worker = std::make_unique<ScriptedWorker>(LinkedPair::End(pair, 1));
    ring_.source().Add(LinkedPair::End(pair, 0));
    return worker;
  }
  wire::FromWorker Hello(const std::string& name, int ranks = 2) const {
    const RingAgreement& own = options_.agreement;
    wire::FromWorker message;
    wire::Hello& hello = *message.mutable_hello();
    hello.set_protocol(kWorkerProtocol);
    hello.set_name(name);
    hello.set_build(own.build);
    hello.set_kernels(own.kernels);
    hello.set_page_layout(own.page_layout);
    hello.set_fingerprint(own.fingerprint);
    hello.set_ranks(ranks);
    return message;
  }
  static bool IsAssign(const std::string& bytes) {
    return DecodeToWorker(bytes).value().has_assign();
  }

  RemoteRanksOptions options_;
  absl::StatusOr<std::unique_ptr<RemoteRanks>> made_ = absl::UnknownError("none yet");
  std::thread coordinator_;
};

TEST_F(HelloTest, AWorkerLearnsFirstHowLongItMayBeSilent) {
  options_.silence = 7s;
  Begin();
  const auto worker = Dial("one");
  worker->Say(Encode(Hello("one")));
  const auto first = worker->Hear([](const std::string&) { return true; });
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(DecodeToWorker(*first).value().welcome().silence_ms(), 7000u);
}

TEST_F(HelloTest, RanksGoToWorkersByTheirNames) {
  Begin();
  ring_.Add("b", 1);
  ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 1 is missing"));
  WorkerThread& first = ring_.Add("a", 1);
  const auto ranks = End().value();
  EXPECT_EQ(ranks->transport(), "wires between 3 processes");
  EXPECT_EQ(ranks->Run(Plan()).value().back().logits, LogitsInOneProcess());
  first.pair().Cut();
  ASSERT_TRUE(testing::Eventually([&] { return ranks->state() == RanksState::kMending; }));
  EXPECT_THAT(std::string(ranks->Start(Plan()).message()),
              HasSubstr("worker \"a\" at the pair of a with rank 1 is lost"));
}

struct Difference {
  const char* name;
  std::function<void(wire::Hello&)> make;
  std::vector<std::string> texts;
};

TEST_F(HelloTest, WhoeverDiffersIsRefusedWithBothValues) {
  const std::string layout = options_.agreement.page_layout;
  const Difference differences[] = {
      {"protocol",
       [](auto& hello) { hello.set_protocol(9); },
       {"protocol", "9", std::to_string(kWorkerProtocol)}},
      {"build", [](auto& hello) { hello.set_build("build 2"); }, {"\"build 2\"", "\"build 1\""}},
      {"kernels",
       [](auto& hello) { hello.set_kernels("other"); },
       {"\"other\"", options_.agreement.kernels, "--cpu-isa"}},
      {"layout",
       [](auto& hello) { hello.set_page_layout("32 tokens"); },
       {"\"32 tokens\"", layout, "--page-tokens"}},
      {"weights",
       [](auto& hello) { hello.set_fingerprint("fingerprint 2"); },
       {"\"fingerprint 2\"", "\"fingerprint 1\"", "--model"}},
      {"too many", [](auto& hello) { hello.set_ranks(3); }, {"hosts 3 ranks", "misses 2"}},
      {"none", [](auto& hello) { hello.set_ranks(0); }, {"hosts 0 ranks"}},
      {"nameless", [](auto& hello) { hello.set_name(""); }, {"a name of 0 bytes"}},
  };
  Begin();
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    const auto worker = Dial(difference.name);
    wire::FromWorker message = Hello(difference.name);
    difference.make(*message.mutable_hello());
    worker->Say(Encode(message));
    const std::string why(worker->WaitClosed().message());
    for (const std::string& text : difference.texts) EXPECT_THAT(why, HasSubstr(text));
    EXPECT_TRUE(ring_.source().WaitForReport(why));
  }
  ring_.Add("right", 2);
  EXPECT_EQ(End().status(), absl::OkStatus());
}

TEST_F(HelloTest, ANameIsTakenOnce) {
  Begin();
  const auto first = Dial("here");
  first->Say(Encode(Hello("one", 1)));
  ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 1 is missing"));
  const auto second = Dial("there");
  second->Say(Encode(Hello("one", 1)));
  const absl::Status refused = second->WaitClosed();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"one\": it is at here"));
}

TEST_F(HelloTest, AWorkerThatLeavesBeforeAllAreThereIsMissing) {
  Begin();
  auto first = Dial("here");
  first->Say(Encode(Hello("one", 2 - 1)));
  ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 1 is missing"));
  ring_.source().ForgetReports();
  first.reset();
  ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 2 are missing"));
  ring_.Add("two", 2);  // which would not find room beside the first
  const auto made = End();
  EXPECT_EQ(made.status(), absl::OkStatus());
}

TEST_F(HelloTest, StrangersAreRefused) {
  Begin();
  const auto browser = Dial("a browser");
  browser->Say("GET / HTTP/1.1");
  EXPECT_THAT(std::string(browser->WaitClosed().message()), HasSubstr("no control message"));
  const auto early = Dial("an early one");
  wire::FromWorker beat;
  beat.mutable_beat();
  early->Say(Encode(beat));
  EXPECT_THAT(std::string(early->WaitClosed().message()), HasSubstr("than Hello first"));
  ring_.Add("right", 2);
  const auto ranks = End().value();
  const auto late = Dial("late");
  late->Say("GET / HTTP/1.1");
  EXPECT_THAT(std::string(late->WaitClosed().message()), HasSubstr("no control message"));
  EXPECT_EQ(ranks->state(), RanksState::kUp);
}

TEST_F(HelloTest, WhoeverSaysNothingIsRefused) {
  ManualClock clock;
  options_.set.clock = &clock;
  options_.silence = 24h;
  Begin();
  const auto silent = Dial("a port scan");
  ASSERT_TRUE(clock.WaitForWaiters(1));
  absl::Status refused;
  std::atomic<bool> closed{false};
  std::thread waiter([&] {
    refused = silent->WaitClosed();
    closed = true;
  });
  EXPECT_TRUE(clock.AdvanceUntil([&] { return closed.load(); }, 1s));
  waiter.join();
  EXPECT_THAT(std::string(refused.message()), HasSubstr("did not say Hello within 10000 ms"));
  ring_.Add("right", 2);
  EXPECT_EQ(End().status(), absl::OkStatus());
}

// Answers that never come; until when.
TEST_F(HelloTest, AWorkerThatIsNeverReadyMakesRoomForAnother) {
  for (const bool wires : {false, true}) {
    for (const bool beats : {false, true}) {
      SCOPED_TRACE(::testing::Message() << "wires " << wires << ", beats " << beats);
      ManualClock clock;
      options_ = ring_.OptionsOf(0, kRanks);
      options_.set.clock = &clock;
      options_.silence = 2s;
      options_.forming_timeout = 7s;
      testing::WorkerRing ring(world_, model_);
      const auto pair = std::make_shared<LinkedPair>("x");
      ScriptedWorker worker(LinkedPair::End(pair, 1));
      ring.source().Add(LinkedPair::End(pair, 0));
      worker.Say(Encode(Hello("one", 3)));
      absl::StatusOr<std::unique_ptr<RemoteRanks>> made = absl::UnknownError("none yet");
      std::thread coordinator([&] { made = ring.Create(options_); });
      EXPECT_TRUE(worker.Hear(IsAssign).has_value());
      wire::FromWorker message;
      if (wires) {
        message.mutable_wire_ready()->set_epoch(1);
        for (int rank = 0; rank < 3; ++rank) message.mutable_wire_ready()->add_addresses("x");
        worker.Say(Encode(message));
      }
      message.mutable_beat();
      const std::string beat = Encode(message);
      absl::Status lost;
      std::atomic<bool> over{false};
      std::thread waiter([&] {
        lost = worker.WaitClosed();
        over = true;
      });
      EXPECT_TRUE(clock.AdvanceUntil([&] {
        if (beats) worker.Say(beat);
        return over.load();
      }));
      waiter.join();
      const char* what = !beats  ? "it has said nothing for 2000 ms"
                         : wires ? "it did not take its memory within 7000 ms"
                                 : "it did not open its wires within 7000 ms";
      EXPECT_THAT(std::string(lost.message()),
                  AllOf(HasSubstr("worker \"one\" at x with ranks 0 to 2"), HasSubstr(what)));
      EXPECT_TRUE(ring.source().WaitForReport("a host for ranks 0 to 2"));
      WorkerRanksOptions two = ring.WorkerOptionsOf("two", 3);
      two.clock = &clock;  // by which its coordinator answers
      ring.Add(two);
      coordinator.join();
      EXPECT_EQ(made.status(), absl::OkStatus());
    }
  }
}

TEST_F(HelloTest, AnEmptyAddressOfAWireIsRefused) {
  Begin();
  const auto worker = Dial("one");
  worker->Say(Encode(Hello("one")));
  EXPECT_TRUE(worker->Hear(IsAssign).has_value());
  wire::FromWorker message;
  message.mutable_wire_ready()->set_epoch(1);
  for (const char* address : {"x", ""}) message.mutable_wire_ready()->add_addresses(address);
  worker->Say(Encode(message));
  EXPECT_THAT(std::string(worker->WaitClosed().message()), HasSubstr("an empty address"));
  EXPECT_FALSE(End().ok());
}

// All workers are told it, in one message: they would be lost with the one that said it.
TEST_F(HelloTest, ALongAddressOfAWireIsRefused) {
  Begin();
  const auto worker = Dial("one");
  worker->Say(Encode(Hello("one")));
  EXPECT_TRUE(worker->Hear(IsAssign).has_value());
  wire::FromWorker message;
  message.mutable_wire_ready()->set_epoch(1);
  for (const size_t bytes : {1, 65'537}) {
    message.mutable_wire_ready()->add_addresses(std::string(bytes, 'x'));
  }
  worker->Say(Encode(message));
  EXPECT_THAT(std::string(worker->WaitClosed().message()),
              HasSubstr("an address of a wire of 65537 bytes; allowed are 1 to 65536"));
  EXPECT_FALSE(End().ok());
}

TEST_F(HelloTest, WhatAWorkerSaysOfItsDeviceIsShortAndPrintable) {
  WorkerThread& worker = ring_.Add("one", 2);
  worker.pair().FromWorker([](std::string& bytes) {
    wire::FromWorker message = DecodeFromWorker(bytes).value();
    if (!message.has_ready()) return true;
    message.mutable_ready()->mutable_ranks(0)->set_device("a\xFF\n\x7F~");
    message.mutable_ready()->mutable_ranks(1)->set_device(std::string(size_t{1} << 20, 'b'));
    bytes = Encode(message);
    return true;
  });
  const auto ranks = ring_.Create(options_).value();
  EXPECT_EQ(ranks->facts()[1].device, "a???~");
  EXPECT_EQ(ranks->facts()[2].device, std::string(256, 'b'));
}

TEST_F(HelloTest, AWorkerWithoutRoomSaysSo) {
  Begin();
  WorkerRanksOptions options = ring_.WorkerOptionsOf("small", 2);
  options.check_memory = [](const RankSetOptions& set) {
    EXPECT_EQ(set.span.first, 1);
    EXPECT_EQ(set.span.local, 2);
    EXPECT_EQ(set.engine.kv_memory_bytes, size_t{8} << 20);
    return absl::ResourceExhaustedError("8 MiB are wanted, and 5 MiB are free");
  };
  WorkerThread& worker = ring_.Add(options);
  const absl::Status failed = End().status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("worker \"small\""), HasSubstr("8 MiB are wanted")));
  EXPECT_EQ(worker.Join().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(HelloTest, AWorkerWithoutWiresSaysSo) {
  Begin();
  WorkerRanksOptions options = ring_.WorkerOptionsOf("wireless", 2);
  options.open_carrier = [] { return absl::FailedPreconditionError("install libucx0"); };
  ring_.Add(options);
  EXPECT_THAT(std::string(End().status().message()),
              AllOf(HasSubstr("worker \"wireless\""), HasSubstr("install libucx0")));
}

TEST_F(HelloTest, TheWaitForWorkersEndsWithTheirSource) {
  Begin();
  const auto one = Dial("one");
  one->Say(Encode(Hello("one", 1)));
  ASSERT_TRUE(ring_.source().WaitForReport("of 3 ranks 1 is missing"));
  ring_.source().End(absl::CancelledError("the daemon stops"));
  EXPECT_EQ(End().status(), absl::CancelledError("the daemon stops"));
  EXPECT_EQ(one->WaitClosed(), absl::UnavailableError("the daemon stops"));
}

}  // namespace
}  // namespace annulus

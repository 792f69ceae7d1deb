// A ring that forms first loses workers, and waits for others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/workers/control_messages.h"
#include "tests/engine/workers/recall_ring.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::WorkerThread;

class FirstFormingTest : public testing::RecallRing {
 protected:
  // A ring whose first `local` ranks are here is made on a thread of its own.
  void Begin(testing::WorkerRing& ring, int local) {
    RemoteRanksOptions options = ring.OptionsOf(local, kRanks);
    options.on_loss = [this](RingLoss loss) {
      const std::lock_guard lock(mutex_);
      losses_.push_back(loss);
    };
    is_made_ = false;
    maker_ = std::thread([this, &ring, options] {
      made_ = ring.Create(options);
      is_made_ = true;
    });
  }
  std::unique_ptr<RemoteRanks> End() {
    maker_.join();
    EXPECT_EQ(made_.status(), absl::OkStatus());
    return made_.ok() ? *std::move(made_) : nullptr;
  }
  std::vector<RingLoss> losses() {
    const std::lock_guard lock(mutex_);
    return losses_;
  }

  std::thread maker_;
  std::atomic<bool> is_made_{false};
  absl::StatusOr<std::unique_ptr<RemoteRanks>> made_ = absl::UnknownError("none yet");
  std::mutex mutex_;
  std::vector<RingLoss> losses_;
};

using Heard = bool (*)(const wire::ToWorker&);
using Said = bool (*)(const wire::FromWorker&);

// Cut at each word that it hears or says on its way into the ring.
TEST_F(FirstFormingTest, AWorkerThatIsLostIsWaitedFor) {
  const Heard heard[] = {[](const auto& word) { return word.has_assign(); },
                         [](const auto& word) { return word.has_form(); }};
  const Said said[] = {[](const auto& word) { return word.has_wire_ready(); },
                       [](const auto& word) { return word.has_ready(); }};
  for (int at = 0; at < 4; ++at) {
    for (const int local : {0, 1}) {
      SCOPED_TRACE(::testing::Message() << "at word " << at << ", " << local << " ranks here");
      losses_.clear();
      testing::WorkerRing ring(world_, model_);
      ring.Add("a", kRanks - 1 - local);
      WorkerThread& lost = ring.Add("b", 1);
      if (at < 2) {
        lost.pair().ToWorker([&lost, heard = heard[at]](std::string& bytes) {
          if (!heard(DecodeToWorker(bytes).value())) return true;
          lost.pair().Cut();
          return false;
        });
      } else {
        lost.pair().FromWorker([&lost, said = said[at - 2]](std::string& bytes) {
          if (!said(DecodeFromWorker(bytes).value())) return true;
          lost.pair().Cut();
          return false;
        });
      }
      Begin(ring, local);
      EXPECT_TRUE(ring.source().WaitForReport(
          "a host for rank 2 of a worker with --local-ranks 1, as worker \"b\""));
      EXPECT_FALSE(is_made_);
      ring.Add("b", 1);  // it was started again
      const auto ranks = End();
      ASSERT_NE(ranks, nullptr);
      EXPECT_EQ(ranks->state(), RanksState::kUp);
      EXPECT_THAT(ranks->TakeLost(), IsEmpty());
      EXPECT_EQ(ranks->awaited(), "");
      EXPECT_THAT(losses(), ElementsAre(RingLoss::kClosed));
      EXPECT_EQ(ranks->Run(Plan()).value().at(kRanks - 1).logits, LogitsInOneProcess());
    }
  }
}

TEST_F(FirstFormingTest, AllOfThemTwice) {
  testing::WorkerRing ring(world_, model_);
  std::vector<WorkerThread*> hosts = {&ring.Add("a", 1), &ring.Add("b", 2)};
  const auto cut_at_form = [](WorkerThread& worker) {
    worker.pair().ToWorker([&worker](std::string& bytes) {
      if (!DecodeToWorker(bytes).value().has_form()) return true;
      worker.pair().Cut();
      return false;
    });
  };
  cut_at_form(*hosts[0]);
  cut_at_form(*hosts[1]);
  Begin(ring, 0);
  ASSERT_TRUE(ring.source().WaitForReport("rank 0 of a worker with --local-ranks 1"));
  ASSERT_TRUE(ring.source().WaitForReport("ranks 1 to 2 of a worker with --local-ranks 2"));
  ring.source().ForgetReports();
  cut_at_form(ring.Add("c", 1));
  ring.Add("d", 2);
  ASSERT_TRUE(ring.source().WaitForReport("worker \"c\""));
  ring.Add("e", 1);
  const auto ranks = End();
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(ranks->Run(Plan()).value().back().logits, LogitsInOneProcess());
}

// Nobody can come.
TEST_F(FirstFormingTest, ALossEndsTheWaitIfTheSourceHasEnded) {
  testing::WorkerRing ring(world_, model_);
  WorkerThread& lost = ring.Add("b", 3);
  ring.source().EndAt("a host for");
  lost.pair().ToWorker([&lost](std::string& bytes) {
    if (!DecodeToWorker(bytes).value().has_form()) return true;
    lost.pair().Cut();
    return false;
  });
  Begin(ring, 0);
  maker_.join();
  EXPECT_EQ(made_.status(), absl::CancelledError("the test ends"));
}

}  // namespace
}  // namespace annulus

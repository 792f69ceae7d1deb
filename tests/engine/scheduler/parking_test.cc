#include "engine/scheduler/parking.h"

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace annulus {
namespace {

class ParkingTest : public ::testing::Test {
 protected:
  void Admit(SequenceId id) {
    state_.running.push_back(std::make_unique<Sequence>());
    state_.running.back()->id = id;
  }

  // Lets readers of `full` be behind.
  void Update(const std::set<SequenceId>& full, int max_running) {
    UpdatePaused(
        state_, [&](SequenceId id) { return !full.contains(id); }, max_running);
  }

  std::vector<SequenceId> Active() const {
    std::vector<SequenceId> ids;
    for (const auto& sequence : state_.running) {
      if (!sequence->paused) ids.push_back(sequence->id);
    }
    return ids;
  }

  EngineState state_;
};

TEST_F(ParkingTest, ReadersThatAreBehindHoldNoSlot) {
  for (const SequenceId id : {1, 2, 3}) Admit(id);
  Update({1, 3}, 3);
  EXPECT_EQ(Active(), std::vector<SequenceId>{2});
  EXPECT_EQ(CountActive(state_), 1);
  Update({}, 3);
  EXPECT_EQ(CountActive(state_), 3);
}

TEST_F(ParkingTest, WhoReturnsWaitsForASlotInTheOrderOfAdmission) {
  for (const SequenceId id : {1, 2}) Admit(id);
  Update({1, 2}, 2);
  for (const SequenceId id : {3, 4}) Admit(id);
  Update({}, 2);
  EXPECT_EQ(Active(), (std::vector<SequenceId>{3, 4}));
  state_.running.pop_back();
  Update({}, 2);
  EXPECT_EQ(Active(), (std::vector<SequenceId>{1, 3}));
  // One that is parked in this very turn makes room at once.
  Update({3}, 2);
  EXPECT_EQ(Active(), (std::vector<SequenceId>{1, 2}));
}

TEST_F(ParkingTest, NeverMoreThanMaxRunningAreActive) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  SequenceId next = 1;
  for (int turn = 0; turn < 2000; ++turn) {
    std::set<SequenceId> full;
    for (const auto& sequence : state_.running) {
      if (random() % 3 == 0) full.insert(sequence->id);
    }
    const int max_running = 5;
    Update(full, max_running);
    ASSERT_LE(CountActive(state_), max_running);
    for (const auto& sequence : state_.running) {
      ASSERT_TRUE(sequence->paused || !full.contains(sequence->id));
    }
    const bool parked_with_room = CountActive(state_) + full.size() < state_.running.size();
    ASSERT_TRUE(!parked_with_room || CountActive(state_) == max_running);
    while (CountActive(state_) < max_running && random() % 4 != 0) Admit(next++);
    if (!state_.running.empty() && random() % 2 == 0) {
      state_.running.erase(state_.running.begin() + random() % state_.running.size());
    }
  }
}

}  // namespace
}  // namespace annulus

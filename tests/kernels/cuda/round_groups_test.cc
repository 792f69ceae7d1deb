// How rounds travel by NCCL: both sides cut alike, whatever the messages, and what was put together
// arrives in its parts.
#include "kernels/cuda/nccl/round_groups.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/copy_many.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_nccl.h"
#include "tests/support/cuda/emulated_streams.h"
#include "tests/support/eventually.h"

namespace annulus::cuda {
namespace {

using Message = Communicator::Message;
using Bytes = std::vector<std::byte>;
using std::chrono::milliseconds;

// A message between two ranks of one process, with the memory of both.
struct Pair {
  int from = 0;
  int to = 0;
  std::vector<Bytes> parts;
  Bytes into;

  Message Sent() {
    Message message{to, {}};
    for (Bytes& part : parts) message.parts.push_back({part.data(), part.size()});
    return message;
  }
  Message Received() {
    Message message{from, {}};
    size_t offset = 0;
    for (const Bytes& part : parts) {
      message.parts.push_back({into.data() + offset, part.size()});
      offset += (part.size() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    }
    return message;
  }
};

Pair RandomPair(int from, int to, std::mt19937& random) {
  Pair pair{from, to, {}, {}};
  size_t bytes = 0;
  const size_t parts = 1 + random() % (random() % 2 == 0 ? 6 : 40);
  for (size_t i = 0; i < parts; ++i) {
    Bytes& part = pair.parts.emplace_back(1 + random() % (random() % 4 == 0 ? 3000 : 90));
    for (std::byte& b : part) b = static_cast<std::byte>(random());
    bytes += (part.size() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  pair.into.resize(bytes);
  return pair;
}

// Runs the groups of all ranks, group by group.
void RunAll(std::vector<std::vector<RoundGroup>>& ranks) {
  size_t most = 0;
  for (const auto& groups : ranks) most = std::max(most, groups.size());
  for (size_t g = 0; g < most; ++g) {
    std::map<std::pair<int, int>, std::vector<NcclTransfer>> sent, received;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (g >= ranks[rank].size()) continue;
      const RoundGroup& group = ranks[rank][g];
      const int own = static_cast<int>(rank);
      EXPECT_LE(group.sends.size() + group.receives.size(), kMostTransfers);
      for (const DeviceCopy& copy : group.packs) std::memcpy(copy.to, copy.from, copy.bytes);
      for (const NcclTransfer& part : group.sends) sent[{own, part.peer}].push_back(part);
      for (const NcclTransfer& part : group.receives) received[{part.peer, own}].push_back(part);
    }
    ASSERT_EQ(sent.size(), received.size());
    for (const auto& [link, transfers] : sent) {
      ASSERT_EQ(transfers.size(), received[link].size()) << "group " << g;
      for (size_t i = 0; i < transfers.size(); ++i) {
        ASSERT_EQ(transfers[i].bytes, received[link][i].bytes) << "group " << g;
        std::memcpy(received[link][i].data, transfers[i].data, transfers[i].bytes);
      }
    }
  }
}

TEST(CutRound, BothSidesAgreeWhateverTravels) {
  for (int seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int ranks = 2 + static_cast<int>(random() % 3);
    std::vector<Pair> pairs;
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        for (unsigned n = random() % 4; n > 0; --n) pairs.push_back(RandomPair(from, to, random));
      }
    }
    const size_t area_bytes = (ranks - 1) * (64 + random() % (random() % 2 == 0 ? 500 : 20000));
    std::vector<Bytes> areas(ranks, Bytes(area_bytes));
    std::vector<std::vector<RoundGroup>> groups;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<Message> sends, receives;
      for (Pair& pair : pairs) {
        if (pair.from == rank) sends.push_back(pair.Sent());
        if (pair.to == rank) receives.push_back(pair.Received());
      }
      groups.push_back(CutRound(sends, receives, areas[rank], rank, ranks).value());
    }
    ASSERT_NO_FATAL_FAILURE(RunAll(groups));
    for (Pair& pair : pairs) {
      const Message received = pair.Received();
      for (size_t i = 0; i < pair.parts.size(); ++i) {
        const std::byte* const data = received.parts[i].data;
        EXPECT_TRUE(std::equal(pair.parts[i].begin(), pair.parts[i].end(), data)) << i;
      }
    }
  }
}

// Parts that lie side by side are sent from where they lie.
TEST(CutRound, WhatLiesInOnePlaceIsNotPutTogether) {
  Bytes memory(4 * 128), area(1 << 20);
  Message message{1, {}};
  for (int i = 0; i < 4; ++i) message.parts.push_back({memory.data() + i * 128, 128});
  const auto groups = CutRound({&message, 1}, {}, area, 0, 2).value();
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_TRUE(groups[0].packs.empty());
  ASSERT_EQ(groups[0].sends.size(), 1u);
  EXPECT_EQ(groups[0].sends[0].data, memory.data());
  EXPECT_EQ(groups[0].sends[0].bytes, memory.size());
}

TEST(CutRound, AnAreaWithoutRoomIsAnError) {
  Bytes area(127);
  EXPECT_EQ(CutRound({}, {}, area, 0, 3).status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(CutRound({}, {}, {}, 0, 2).status().code(), absl::StatusCode::kInternal);
}

// Two emulated GPUs.
class RoundsTest : public ::testing::Test {
 protected:
  static constexpr size_t kParts = 1500;  // and as many to receive: more than NCCL takes in a group
  static constexpr size_t kPart = 256;
  static constexpr size_t kApart = 512;

  RoundsTest() {
    EmulatedDevice::Get().devices = 2;
    EmulatedDevice::Get().guarded = true;
    EmulatedStreams::Get().set_late(true);
    backend_ = CreateCudaBackends(2).value();
    members_ = backend_->OpenGroup(2, milliseconds(1000)).value();
    for (int rank = 0; rank < 2; ++rank) {
      Backend& device = backend_->OnDevice(rank);
      streams_[rank] = device.CreateStream(1).value();
      from_[rank] = device.Allocate(kParts * kApart).value();
      to_[rank] = device.Allocate(kParts * kPart).value();
      area_[rank] = device.Allocate(kParts * kPart).value();
      after_[rank] = device.CreateEvent(false).value();
      done_[rank] = device.CreateEvent(false).value();
    }
  }
  ~RoundsTest() override {
    members_.clear();
    for (int rank = 0; rank < 2; ++rank) {
      streams_[rank].reset();
      from_[rank] = DeviceBuffer();
      to_[rank] = DeviceBuffer();
      area_[rank] = DeviceBuffer();
      after_[rank].reset();
      done_[rank].reset();
    }
    backend_.reset();
    EmulatedNccl::Get().silent_rank = -1;
    EmulatedStreams::Get().set_late(false);
    EmulatedDevice::Get().guarded = false;
    EmulatedDevice::Get().devices = 1;
  }

  // Fills what the rank sends, and takes part in a round.
  absl::Status Exchange(int rank, size_t area_bytes) {
    Bytes pattern(kParts * kApart);
    for (size_t i = 0; i < pattern.size(); ++i) pattern[i] = Pattern(rank, i);
    Backend& device = backend_->OnDevice(rank);
    EXPECT_TRUE(
        device.Copy(*streams_[rank], from_[rank].data(), pattern.data(), pattern.size()).ok());
    EXPECT_TRUE(streams_[rank]->Record(*after_[rank]).ok());
    Message sent{1 - rank, {}}, received{1 - rank, {}};
    for (size_t i = 0; i < kParts; ++i) {
      sent.parts.push_back({from_[rank].data() + i * kApart, kPart});
      received.parts.push_back({to_[rank].data() + i * kPart, kPart});
    }
    return members_[rank]->Exchange({&sent, 1}, {&received, 1}, {area_[rank].data(), area_bytes},
                                    *after_[rank], *done_[rank],
                                    std::chrono::steady_clock::now() + milliseconds(5000));
  }
  static std::byte Pattern(int rank, size_t i) {
    return static_cast<std::byte>(i * 7 + i / 999 + 100 * static_cast<size_t>(rank));
  }

  void ExpectArrived(int rank) {
    ASSERT_TRUE(testing::Eventually([&] { return members_[rank]->Ended(*done_[rank]).value(); }));
    Bytes seen(kParts * kPart);
    ASSERT_TRUE(backend_->OnDevice(rank)
                    .Copy(*streams_[rank], seen.data(), to_[rank].data(), seen.size())
                    .ok());
    for (size_t i = 0; i < seen.size(); ++i) {
      const size_t at = i / kPart * kApart + i % kPart;
      ASSERT_EQ(seen[i], Pattern(1 - rank, at)) << i;
    }
  }

  std::unique_ptr<Backend> backend_;
  std::vector<std::unique_ptr<Communicator>> members_;
  std::unique_ptr<Stream> streams_[2];
  DeviceBuffer from_[2], to_[2], area_[2];
  std::unique_ptr<Event> after_[2], done_[2];
};

TEST_F(RoundsTest, ManyPartsAreFewTransfers) {
  for (const size_t pieces : {1, 6}) {
    SCOPED_TRACE(pieces);
    const int64_t transfers = EmulatedNccl::Get().transfers;
    const int64_t launches = EmulatedDevice::Get().launches;
    for (int rank = 0; rank < 2; ++rank) {
      ASSERT_TRUE(Exchange(rank, kParts * kPart / pieces).ok());
    }
    for (int rank = 0; rank < 2; ++rank) ExpectArrived(rank);
    EXPECT_EQ(EmulatedNccl::Get().transfers - transfers, static_cast<int64_t>(4 * pieces));
    // 128 parts by a launch: 1500, or 250 to a piece.
    EXPECT_EQ(EmulatedDevice::Get().launches - launches, pieces == 1 ? 2 * 12 : 2 * 6 * 2);
  }
}

// What was put together for a peer that never takes it goes with the group.
TEST_F(RoundsTest, AnAbortEndsARoundInTheMiddle) {
  EmulatedNccl::Get().silent_rank = 1;
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(Exchange(rank, kParts * kPart / 3).ok());
  EXPECT_FALSE(members_[0]->Ended(*done_[0]).value());
  members_[0]->Abort();
  members_[1]->Abort();
  EXPECT_EQ(members_[0]->Ended(*done_[0]).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(Exchange(0, kParts * kPart).code(), absl::StatusCode::kAborted);
  EmulatedNccl::Get().silent_rank = -1;
  members_ = backend_->OpenGroup(2, milliseconds(1000)).value();
  for (int rank = 0; rank < 2; ++rank) ASSERT_TRUE(Exchange(rank, kParts * kPart / 3).ok());
  for (int rank = 0; rank < 2; ++rank) ExpectArrived(rank);
}

}  // namespace
}  // namespace annulus::cuda

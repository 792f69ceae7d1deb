// What a wire makes of frames that no rank of its ring has sent.
#include <chrono>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/ring/wire/frame.h"
#include "engine/ring/wire/wire.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/memory_carrier.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;
using testing::MemoryCarrier;

constexpr uint64_t kRingEpoch = 5;

// Rank 0 of 3, and whatever arrives at its carrier.
class Target {
 public:
  Target() : Target(std::make_unique<MemoryCarrier>()) {}

  MemoryCarrier& carrier() { return carrier_; }
  Wire& wire() { return wire_; }

  void Deliver(const FrameHeader& header, const std::vector<std::byte>& bytes) {
    carrier_.Deliver(EncodeFrameHeader(header), bytes, bytes.size());
  }
  // Why the epoch has ended; OK: it has not.
  absl::Status ended() { return wire_.Flush(Clock::Real().Now()); }
  std::string why() { return std::string(ended().message()); }

 private:
  explicit Target(std::unique_ptr<MemoryCarrier> carrier)
      : carrier_(*carrier), wire_(std::move(carrier), 0, 3, kRingEpoch, Clock::Real()) {}

  MemoryCarrier& carrier_;
  Wire wire_;
};

std::vector<std::byte> SomeBytes(size_t count, int value = 7) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

// The frame that a rank would send.
FrameHeader HeaderFor(const std::vector<std::byte>& bytes, int from = 1, uint64_t number = 0) {
  FrameHeader header;
  header.epoch = kRingEpoch;
  header.tag = 9;
  header.number = number;
  header.from = from;
  header.to = 0;
  header.bytes = bytes.size();
  const size_t sizes[] = {bytes.size()};
  header.layout = FrameLayout(sizes);
  header.checksum = FrameChecksum({{bytes.data(), bytes.size()}});
  return header;
}

TEST(HostileFramesTest, HeadersComeBackAndNoBitMayDiffer) {
  const std::vector<std::byte> bytes = SomeBytes(64);
  FrameHeader header = HeaderFor(bytes, 2, 77);
  header.tag = std::numeric_limits<uint64_t>::max();
  const FrameHeaderBytes encoded = EncodeFrameHeader(header);
  const auto decoded = DecodeFrameHeader(encoded);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(EncodeFrameHeader(*decoded), encoded);
  EXPECT_EQ(decoded->number, 77);
  EXPECT_EQ(decoded->from, 2);
  for (size_t bit = 0; bit < 8 * encoded.size(); ++bit) {
    FrameHeaderBytes flipped = encoded;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    Target target;
    target.carrier().Deliver(flipped, bytes, bytes.size());
    // The mark says what is a frame at all; what is one is taken or fails.
    const bool is_mark = bit < 64;
    EXPECT_EQ(target.wire().counters().strays, is_mark ? 1 : 0) << bit;
    EXPECT_EQ(target.ended().code(), is_mark ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss)
        << bit;
    EXPECT_EQ(target.carrier().held(), 0) << bit;
  }
}

TEST(HostileFramesTest, OtherLengthsOfAHeaderAreStrays) {
  Target target;
  const std::vector<std::byte> bytes = SomeBytes(64);
  const FrameHeaderBytes header = EncodeFrameHeader(HeaderFor(bytes));
  std::vector<std::byte> longer(header.begin(), header.end());
  longer.push_back({});
  target.carrier().Deliver({}, bytes, 64);
  target.carrier().Deliver(std::span(header).first(71), bytes, 64);
  target.carrier().Deliver(longer, bytes, 64);
  EXPECT_EQ(target.wire().counters().strays, 3);
  EXPECT_TRUE(target.ended().ok());
  EXPECT_EQ(target.carrier().held(), 0);
}

TEST(HostileFramesTest, FramesOfOrForNobodyHereAreStrays) {
  Target target;
  const std::vector<std::byte> bytes = SomeBytes(64);
  int64_t strays = 0;
  const auto stray = [&](auto change) {
    FrameHeader header = HeaderFor(bytes);
    change(header);
    target.Deliver(header, bytes);
    EXPECT_EQ(target.wire().counters().strays, ++strays);
  };
  stray([](FrameHeader& header) { header.from = -1; });
  stray([](FrameHeader& header) { header.from = 0; });
  stray([](FrameHeader& header) { header.from = 3; });
  stray([](FrameHeader& header) { header.from = std::numeric_limits<int32_t>::min(); });
  stray([](FrameHeader& header) { header.to = 1; });
  stray([](FrameHeader& header) { header.epoch = kRingEpoch + 1; });
  target.Deliver(HeaderFor(bytes), bytes);
  stray([](FrameHeader&) {});  // once more, before it is expected
  std::vector<std::byte> into(128);
  const size_t sizes[] = {64};
  ASSERT_TRUE(target.wire().Expect(1, 9, sizes, into.data()).ok());
  stray([](FrameHeader&) {});  // where it has arrived
  ASSERT_TRUE(target.wire().Receive(1, 9, sizes, Clock::Real().Now()).ok());
  stray([](FrameHeader&) {});  // after it was received
  FrameHeader old = HeaderFor(bytes);
  old.epoch = kRingEpoch - 1;
  target.Deliver(old, bytes);
  EXPECT_EQ(target.wire().counters().old_epochs, 1);
  EXPECT_TRUE(target.ended().ok());
  EXPECT_EQ(target.carrier().held(), 0);
}

TEST(HostileFramesTest, OtherBytesThanWereSentAreDataLoss) {
  for (const bool early : {false, true}) {
    Target target;
    std::vector<std::byte> bytes = SomeBytes(64), into(64);
    const FrameHeader header = HeaderFor(bytes);
    const size_t sizes[] = {64};
    bytes[17] ^= std::byte{4};
    if (early) target.Deliver(header, bytes);
    ASSERT_TRUE(target.wire().Expect(1, 9, sizes, into.data()).ok());
    if (!early) target.Deliver(header, bytes);
    const absl::Status status = target.wire().Receive(1, 9, sizes, Clock::Real().Now()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()), HasSubstr("message 9 from rank 1 to rank 0"));
  }
}

TEST(HostileFramesTest, AFrameLongerThanItSaysWritesNothing) {
  Target target;
  std::vector<std::byte> into(64);
  const size_t sizes[] = {64};
  ASSERT_TRUE(target.wire().Expect(1, 9, sizes, into.data()).ok());
  target.Deliver(HeaderFor(SomeBytes(64)), SomeBytes(65));
  EXPECT_EQ(target.ended().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(target.why(), HasSubstr("rank 1"));
  EXPECT_EQ(into, SomeBytes(64, 0));
}

TEST(HostileFramesTest, WhatIsKeptForAPeerIsBounded) {
  const std::vector<std::byte> bytes = SomeBytes(8);
  for (const uint64_t number : {uint64_t{Wire::kMostEarlyFrames}, uint64_t{1} << 63,
                                std::numeric_limits<uint64_t>::max()}) {
    Target target;
    target.Deliver(HeaderFor(bytes, 2, Wire::kMostEarlyFrames - 1), bytes);
    EXPECT_TRUE(target.ended().ok());
    target.Deliver(HeaderFor(bytes, 2, number), bytes);
    EXPECT_EQ(target.ended().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(target.why(), HasSubstr("from rank 2"));
    EXPECT_EQ(target.carrier().held(), 1);
  }
  // By bytes; what was expected is not counted any more. Another peer has room of its own.
  Target target;
  const auto keep = [&](int from, uint64_t number, size_t memory) {
    target.carrier().Deliver(EncodeFrameHeader(HeaderFor(bytes, from, number)), bytes, memory);
  };
  keep(1, 0, Wire::kMostEarlyBytes);
  keep(2, 0, Wire::kMostEarlyBytes);
  std::vector<std::byte> into(8);
  const size_t sizes[] = {8};
  ASSERT_TRUE(target.wire().Expect(1, 9, sizes, into.data()).ok());
  keep(1, 1, Wire::kMostEarlyBytes - 1);
  EXPECT_TRUE(target.ended().ok());
  keep(1, 2, 2);
  EXPECT_EQ(target.ended().code(), absl::StatusCode::kResourceExhausted);
}

TEST(HostileFramesTest, ALostPeerIsNamedAndTheFirstReasonStays) {
  Target target;
  std::vector<std::byte> into(64);
  const size_t sizes[] = {64};
  ASSERT_TRUE(target.wire().Expect(1, 9, sizes, into.data()).ok());
  target.carrier().Lose(2, absl::UnavailableError("its socket closed"));
  target.carrier().Lose(1, absl::UnavailableError("it too"));
  const absl::Status status = target.wire().Receive(1, 9, sizes, Clock::Real().Now()).status();
  EXPECT_EQ(status, absl::UnavailableError("rank 0 has lost rank 2: its socket closed"));
  target.Deliver(HeaderFor(SomeBytes(64)), SomeBytes(64));
  EXPECT_EQ(into, SomeBytes(64, 0));
  EXPECT_EQ(target.carrier().held(), 0);
}

// Random frames, most of them nearly right: a message that is received has the bytes that its
// checksum says, memory stays bounded, and no frame is lost track of.
TEST(HostileFramesTest, RandomFrames) {
  const uint64_t seed = testing::TestSeed();
  std::mt19937_64 random(seed);
  SCOPED_TRACE(::testing::Message() << "ANNULUS_TEST_SEED=" << seed);
  const auto pick = [&](uint64_t most) { return random() % (most + 1); };
  int64_t received = 0, ended = 0, dropped = 0;
  for (int turn = kSanitized ? 500 : 5000; turn > 0; --turn) {
    Target target;
    std::vector<std::vector<std::byte>> places;
    uint64_t expected = 0, taken = 0;
    for (int step = 0; step < 60 && target.ended().ok(); ++step) {
      std::vector<std::byte> bytes = SomeBytes(64 + pick(1) * pick(1) * pick(300), pick(255));
      FrameHeader header = HeaderFor(bytes, 1 + pick(1) * pick(1), taken + pick(6));
      switch (pick(30)) {
        case 0:
          header.epoch += pick(2) - 1;
          break;
        case 1:
          header.from = static_cast<int32_t>(random());
          break;
        case 2:
          header.to = static_cast<int32_t>(pick(2));
          break;
        case 3:
          header.bytes = random();
          break;
        case 4:
          header.number = random();
          break;
        case 5:
          header.checksum ^= pick(1);
          break;
        case 6:
          header.tag = pick(9);
          break;
        default:
          break;
      }
      if (pick(1) == 0) {
        const size_t sizes[] = {64};
        places.push_back(SomeBytes(64, 0));
        if (target.wire().Expect(1, 9, sizes, places.back().data()).ok()) ++expected;
      }
      if (pick(40) == 0) {
        FrameHeaderBytes encoded = EncodeFrameHeader(header);
        encoded[pick(71)] = static_cast<std::byte>(random());
        target.carrier().Deliver(std::span(encoded).first(72 - pick(1) * pick(72)), bytes, 64);
      } else {
        target.Deliver(header, bytes);
      }
      const size_t sizes[] = {64};
      while (taken < expected) {
        const auto parts = target.wire().Receive(1, 9, sizes, Clock::Real().Now());
        if (!parts.ok()) break;
        ASSERT_EQ((*parts)[0].data, places[taken].data());
        // Each honest message repeats one byte.
        ASSERT_EQ(places[taken], SomeBytes(64, static_cast<int>(places[taken][0])));
        ++taken;
      }
      ASSERT_LE(target.carrier().held(), 2 * Wire::kMostEarlyFrames);
    }
    received += static_cast<int64_t>(taken);
    ended += target.ended().ok() ? 0 : 1;
    const WireCounters counters = target.wire().counters();
    dropped += counters.strays + counters.old_epochs;
  }
  EXPECT_GT(received, 100);
  EXPECT_GT(ended, 100);
  EXPECT_GT(dropped, 100);
}

}  // namespace
}  // namespace annulus

// Experts that come and go have the bytes that they have when all are in memory.

#include "engine/model/experts/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/model/weights/weights.h"
#include "tests/engine/model/gated_source.h"
#include "tests/engine/model/packing_backend.h"
#include "tests/support/eventually.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::GatedSource;
using ::testing::HasSubstr;
using testing::PackingBackend;

constexpr std::chrono::milliseconds kLong{60'000};

// Three layers, of which the first and the last have 7 experts; a row meets 3 of them.
class ExpertCacheTest : public ::testing::Test {
 protected:
  static constexpr int kLayers = 2;
  static constexpr std::array<int, kLayers> kWithExperts = {0, 2};
  static constexpr int32_t kExperts = 7;
  static constexpr int32_t kChosen = 3;
  static constexpr int kLeastSlots = 2 * kChosen;

  ExpertCacheTest()
      : config_(LoadModelConfig(testing::TestFile("golden/qwen3_moe").string()).value()),
        source_(std::make_shared<GatedSource>(config_)),
        all_(LoadWeights(config_, *source_, backend_, ops_, std::nullopt).value()) {
    const GatedWeights& expert = all_.layers[0].experts.each[0];
    for (const auto* each : {&expert.gate, &expert.up, &expert.down}) {
      expert_bytes_ += static_cast<int64_t>(AlignedMatrix(each->weight.storage.size()));
    }
  }

  absl::StatusOr<ModelWeights> Load(int slots, std::chrono::milliseconds longest_wait = kLong) {
    return LoadWeights(config_, *source_, backend_, ops_, std::nullopt,
                       {slots * expert_bytes_, source_, longest_wait});
  }

  // [experts + 1] for a choice of these.
  static std::vector<int32_t> Ends(const std::vector<int32_t>& experts) {
    std::vector<int32_t> ends(kExperts + 1);
    for (const int32_t e : experts) ++ends[static_cast<size_t>(e) + 1];
    for (size_t e = 1; e < ends.size(); ++e) ends[e] += ends[e - 1];
    return ends;
  }

  bool IsExpert(const GatedWeights& found, int layer, int32_t expert) const {
    const GatedWeights& wanted =
        all_.layers[static_cast<size_t>(layer)].experts.each[static_cast<size_t>(expert)];
    bool same = true;
    for (const auto part : {&GatedWeights::gate, &GatedWeights::up, &GatedWeights::down}) {
      const PackedMatrix& a = (found.*part).weight;
      const PackedMatrix& b = (wanted.*part).weight;
      same = same && a.out_features == b.out_features && a.in_features == b.in_features &&
             a.dtype == b.dtype && a.storage.size() == b.storage.size() &&
             std::memcmp(a.storage.data(), b.storage.data(), a.storage.size()) == 0;
    }
    return same;
  }

  // Walks through the experts; whether it waited.
  bool WalkThrough(ExpertCache& cache, int layer, const std::vector<int32_t>& experts) {
    const std::vector<int32_t> ends = Ends(experts);
    ExpertCache::Walk walk(cache, layer, ends);
    for (const int32_t e : experts) {
      const auto held = walk.Hold(e);
      EXPECT_TRUE(held.ok()) << held.status();
      if (held.ok()) {
        EXPECT_TRUE(IsExpert(**held, layer, e)) << layer << " " << e;
      }
    }
    return walk.waited();
  }

  const ModelConfig config_;
  PackingBackend backend_;
  const OpTable ops_ = PackingBackend::Ops();
  const std::shared_ptr<GatedSource> source_;
  const ModelWeights all_;
  int64_t expert_bytes_ = 0;
};

TEST_F(ExpertCacheTest, EveryExpertHasTheBytesThatItHasAmongAll) {
  for (const int slots : {kLeastSlots, 11, kLayers * kExperts - 1}) {
    const ModelWeights weights = Load(slots).value();
    ASSERT_NE(weights.expert_cache, nullptr);
    EXPECT_EQ(weights.expert_cache->bytes(), static_cast<size_t>(slots * expert_bytes_));
    EXPECT_EQ(weights.parameters, all_.parameters);
    EXPECT_EQ(weights.matrix_dtypes, all_.matrix_dtypes);
    for (int round = 0; round < 3; ++round) {
      for (const int layer : kWithExperts) {
        WalkThrough(*weights.expert_cache, layer, {0, 1, 2, 3, 4, 5, 6});
      }
    }
    const ExpertCounts counts = weights.expert_cache->counts();
    EXPECT_EQ(counts.hits + counts.misses, 3 * kLayers * kExperts);
    EXPECT_GE(counts.misses, kLayers * kExperts - slots);
  }
}

TEST_F(ExpertCacheTest, AsManyAsFitAreThereFromTheStart) {
  const ModelWeights weights = Load(8).value();
  for (const int layer : kWithExperts) {
    EXPECT_FALSE(WalkThrough(*weights.expert_cache, layer, {0, 1, 2, 3}));
  }
  EXPECT_EQ(weights.expert_cache->counts().misses, 0);
  WalkThrough(*weights.expert_cache, 2, {2, 5});
  EXPECT_EQ(weights.expert_cache->counts().misses, 1);
}

TEST_F(ExpertCacheTest, WithRoomForAllNothingIsLeftOut) {
  const ModelWeights weights = Load(kLayers * kExperts).value();
  EXPECT_EQ(weights.expert_cache, nullptr);
  EXPECT_EQ(weights.bytes, all_.bytes);
}

TEST_F(ExpertCacheTest, LessThanTwiceWhatATokenNeedsIsRefused) {
  const absl::Status status = Load(kLeastSlots - 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("or more (6 experts of "));
  const auto shape =
      ShapeWeights(config_, *source_, ops_, std::nullopt, (kLeastSlots - 1) * expert_bytes_);
  EXPECT_EQ(shape.status(), status);
}

TEST_F(ExpertCacheTest, TakesWhatWasPlanned) {
  for (const int slots : {kLeastSlots, 11, kLayers * kExperts}) {
    const int64_t limit = slots * expert_bytes_ + expert_bytes_ / 2;
    const auto planned = ShapeWeights(config_, *source_, ops_, std::nullopt, limit);
    const auto taken = Load(slots);
    EXPECT_EQ(planned->bytes, taken->bytes);
    EXPECT_EQ(planned->expert_reader_bytes, taken->expert_reader_bytes);
    EXPECT_EQ(taken->expert_reader_bytes > 0, taken->expert_cache != nullptr);
  }
}

// While the step computes with one expert, the next one comes.
TEST_F(ExpertCacheTest, ReadsAhead) {
  const ModelWeights weights = Load(kLeastSlots).value();
  ExpertCache& cache = *weights.expert_cache;
  const std::vector<int32_t> ends = Ends({3, 4, 5, 6});
  ExpertCache::Walk walk(cache, 0, ends);
  ASSERT_TRUE(walk.Hold(3).ok());
  int64_t expert = 0;
  for (const auto part : {&GatedWeights::gate, &GatedWeights::up, &GatedWeights::down}) {
    expert += static_cast<int64_t>((all_.layers[0].experts.each[0].*part).weight.storage.size());
  }
  ASSERT_TRUE(testing::Eventually([&] { return cache.counts().read_bytes == 4 * expert; }));
  const double waited = cache.counts().wait_seconds;
  for (const int32_t e : {4, 5, 6}) {
    const auto held = walk.Hold(e);
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_TRUE(IsExpert(**held, 0, e));
  }
  EXPECT_EQ(cache.counts().wait_seconds, waited);
}

// Six experts that every step needs and two others that change, in seven slots: the least recently
// used one would always be one of the six.
TEST_F(ExpertCacheTest, WhatIsChosenOftenStays) {
  constexpr int kSteps = 20;
  const ModelWeights weights = Load(7).value();
  ExpertCache& cache = *weights.expert_cache;
  std::mt19937 random(5);
  int64_t before = 0;
  for (int step = 0; step < 2 * kSteps; ++step) {
    if (step == kSteps) before = cache.counts().hits;
    for (const int layer : kWithExperts) {
      WalkThrough(cache, layer, {0, 1, 2, static_cast<int32_t>(3 + random() % 4)});
    }
  }
  EXPECT_GE(cache.counts().hits - before, kSteps * kLayers * 3);
}

TEST_F(ExpertCacheTest, AFailedReadEndsTheWalkAndNotTheCache) {
  const ModelWeights weights = Load(kLeastSlots).value();
  ExpertCache& cache = *weights.expert_cache;
  source_->Fail(true);
  {
    const std::vector<int32_t> ends = Ends({5, 6});
    ExpertCache::Walk walk(cache, 2, ends);
    EXPECT_EQ(walk.Hold(5).status().code(), absl::StatusCode::kDataLoss);
    const absl::Status again = walk.Hold(6).status();
    EXPECT_EQ(again.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(again.message()), HasSubstr("truncated"));
  }
  EXPECT_FALSE(WalkThrough(cache, 2, {0, 1}));  // what is in memory stays
  source_->Fail(false);
  // The read of 6 that began before may still be under way, and fail the next walk.
  EXPECT_TRUE(testing::Eventually([&] {
    const std::vector<int32_t> ends = Ends({5, 6});
    ExpertCache::Walk walk(cache, 2, ends);
    return walk.Hold(5).ok() && walk.Hold(6).ok();
  }));
  EXPECT_FALSE(WalkThrough(cache, 2, {5, 6}));
}

TEST_F(ExpertCacheTest, AWaitHasABound) {
  const ModelWeights weights = Load(kLeastSlots, std::chrono::milliseconds(20)).value();
  ExpertCache& cache = *weights.expert_cache;
  source_->Close(true);
  {
    const std::vector<int32_t> ends = Ends({6});
    ExpertCache::Walk walk(cache, 0, ends);
    const absl::Status status = walk.Hold(6).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("for 20 ms (exchange-timeout)"));
    EXPECT_GE(cache.counts().wait_seconds, 0.02);
  }
  source_->Close(false);
}

TEST_F(ExpertCacheTest, AnAbortEndsTheWaitsUntilStepsBeginAgain) {
  const ModelWeights weights = Load(kLeastSlots).value();
  ExpertCache& cache = *weights.expert_cache;
  source_->Close(true);
  const std::vector<int32_t> ends = Ends({0, 6});
  {
    ExpertCache::Walk walk(cache, 0, ends);
    ASSERT_TRUE(walk.Hold(0).ok());
    absl::Status ended;
    std::thread step([&] { ended = walk.Hold(6).status(); });
    EXPECT_TRUE(testing::Eventually([&] { return source_->waiting() > 0; }));
    cache.Abort(absl::CancelledError("it stops"));
    cache.Abort(absl::InternalError("too late"));
    step.join();
    EXPECT_EQ(ended, absl::CancelledError("it stops"));
  }
  {
    ExpertCache::Walk later(cache, 0, ends);
    EXPECT_TRUE(later.Hold(0).ok()) << "it waits for nothing";
    EXPECT_EQ(later.Hold(6).status(), absl::CancelledError("it stops"));
  }
  cache.Resume();
  source_->Close(false);
  WalkThrough(cache, 0, {0, 6});
}

// Ranks walk at the same time, in layers of their own, and there are fewer slots than they need.
TEST_F(ExpertCacheTest, RanksShareTheSlots) {
  for (const int slots : {kLeastSlots, 13}) {
    const ModelWeights weights = Load(slots).value();
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 5; ++rank) {
      ranks.emplace_back([&, rank] {
        std::mt19937 random(static_cast<unsigned>(rank));
        for (int step = 0; step < 30; ++step) {
          std::vector<int32_t> experts;
          for (int32_t e = 0; e < kExperts; ++e) {
            if (random() % 2 == 0) experts.push_back(e);
          }
          const bool waited =
              WalkThrough(*weights.expert_cache, kWithExperts[step % kLayers], experts);
          weights.expert_cache->CountStep(waited);
        }
      });
    }
    for (std::thread& rank : ranks) rank.join();
    const ExpertCounts counts = weights.expert_cache->counts();
    EXPECT_EQ(counts.steps, 5 * 30);
    EXPECT_GT(counts.waited_steps, 0);
    EXPECT_LE(counts.waited_steps, counts.steps);
  }
}

}  // namespace
}  // namespace annulus

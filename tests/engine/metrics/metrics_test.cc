#include "engine/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "engine/metrics/buckets.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Counter, Grows) {
  Counter counter;
  counter.Increment();
  counter.Add(0);
  counter.Add(2.5);
  EXPECT_EQ(counter.value(), 3.5);
}

TEST(CounterDeathTest, NeverShrinks) {
  Counter counter;
  EXPECT_DEATH(counter.Add(-1), "cannot grow by -1");
  EXPECT_DEATH(counter.Add(std::nan("")), "cannot grow by");
}

TEST(Gauge, KeepsTheLatest) {
  Gauge gauge;
  EXPECT_EQ(gauge.value(), 0);
  gauge.Set(5);
  gauge.Set(-2);
  EXPECT_EQ(gauge.value(), -2);
}

TEST(Histogram, CountsCumulativelyAndBoundsAreInclusive) {
  Histogram histogram({1, 2, 4});
  for (double value : {-1.0, 1.0, 1.5, 2.0, 2.1, 4.0, 5.0, kInfinity}) histogram.Observe(value);
  MetricSample sample;
  histogram.Collect(sample);
  EXPECT_THAT(sample.buckets,
              ElementsAre(Pair(1, 2u), Pair(2, 4u), Pair(4, 6u), Pair(kInfinity, 8u)));
  EXPECT_EQ(sample.count, 8u);
  EXPECT_EQ(sample.sum, kInfinity);
}

TEST(Histogram, NanIsNotCounted) {
  Histogram histogram({1});
  histogram.Observe(0.5);
  histogram.Observe(std::nan(""));
  MetricSample sample;
  histogram.Collect(sample);
  EXPECT_EQ(sample.count, 1u);
  EXPECT_EQ(sample.sum, 0.5);
}

TEST(HistogramDeathTest, BoundsMustAscendAndBeFinite) {
  EXPECT_DEATH(Histogram(std::vector<double>{}), "at least one");
  EXPECT_DEATH(Histogram({1, kInfinity}), "finite");
  EXPECT_DEATH(Histogram({1, 1}), "ascend at 1");
}

TEST(Buckets, AscendAndReachWhatLongDocumentsNeed) {
  for (const std::vector<double>& bounds :
       {LatencyBuckets(), TokenLatencyBuckets(), TokenCountBuckets(), RareCountBuckets()}) {
    for (size_t i = 1; i < bounds.size(); ++i) EXPECT_LT(bounds[i - 1], bounds[i]);
  }
  EXPECT_GE(LatencyBuckets().back(), 8 * 3600);
  EXPECT_GE(TokenCountBuckets().back(), 10'000'000);
}

TEST(MetricSet, CollectsFamiliesInOrderWithPrefixAndLabels) {
  MetricSet set;
  set.AddCounter("tokens_total", "Tokens.").Add(3);
  Family<Gauge>& bytes = set.AddGauges("bytes", "Bytes.", {"rank", "kind"});
  bytes.With({"0", "kv"}).Set(10);
  bytes.With({"1", "kv"}).Set(20);
  bytes.With({"0", "kv"}).Set(11);
  set.AddHistogram("seconds", "Seconds.", {1}).Observe(2);
  set.AddCounters("errors_total", "Errors.", {"code"});

  const std::vector<MetricFamily> families = set.Collect();
  ASSERT_EQ(families.size(), 4u);
  EXPECT_EQ(families[0].name, "annulus_tokens_total");
  EXPECT_EQ(families[0].help, "Tokens.");
  EXPECT_EQ(families[0].type, MetricFamily::Type::kCounter);
  ASSERT_EQ(families[0].samples.size(), 1u);
  EXPECT_THAT(families[0].samples[0].labels, IsEmpty());
  EXPECT_EQ(families[0].samples[0].value, 3);

  EXPECT_EQ(families[1].type, MetricFamily::Type::kGauge);
  ASSERT_EQ(families[1].samples.size(), 2u);
  EXPECT_THAT(families[1].samples[0].labels, ElementsAre(Pair("rank", "0"), Pair("kind", "kv")));
  EXPECT_EQ(families[1].samples[0].value, 11);
  EXPECT_EQ(families[1].samples[1].value, 20);

  EXPECT_EQ(families[2].type, MetricFamily::Type::kHistogram);
  EXPECT_EQ(families[2].samples[0].count, 1u);
  EXPECT_THAT(families[3].samples, IsEmpty());
}

TEST(MetricSet, ChildrenStayWhereTheyAre) {
  MetricSet set;
  Family<Counter>& family = set.AddCounters("events_total", "Events.", {"kind"});
  Counter& first = family.With({"a"});
  for (int i = 0; i < 100; ++i) family.With({std::to_string(i)});
  EXPECT_EQ(&family.With({"a"}), &first);
}

TEST(MetricSetDeathTest, WrongLabelsAndDoubleNamesAreBugs) {
  MetricSet set;
  Family<Gauge>& family = set.AddGauges("bytes", "Bytes.", {"rank"});
  EXPECT_DEATH(family.With({}), "annulus_bytes has 1 labels, got 0");
  EXPECT_DEATH(set.AddCounter("bytes", "Again."), "annulus_bytes was added twice");
}

TEST(MetricSet, ThreadsLoseNoUpdateAndSnapshotsAgreeWithThemselves) {
  constexpr int kThreads = 3, kUpdates = 5000;
  MetricSet set;
  Family<Counter>& counters = set.AddCounters("events_total", "Events.", {"kind"});
  Histogram& histogram = set.AddHistogram("seconds", "Seconds.", {1, 2, 3});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kUpdates; ++i) {
        counters.With({std::to_string(i % 3)}).Increment();
        histogram.Observe(i % 5);
      }
    });
  }
  for (int i = 0; i < 100; ++i) {
    const MetricSample sample = set.Collect()[1].samples[0];
    EXPECT_EQ(sample.count, sample.buckets.back().second);
    for (size_t b = 1; b < sample.buckets.size(); ++b) {
      EXPECT_LE(sample.buckets[b - 1].second, sample.buckets[b].second);
    }
  }
  for (std::thread& thread : threads) thread.join();
  double events = 0;
  const std::vector<MetricFamily> families = set.Collect();
  for (const MetricSample& sample : families[0].samples) events += sample.value;
  EXPECT_EQ(events, kThreads * kUpdates);
  EXPECT_EQ(families[1].samples[0].count, uint64_t{kThreads} * kUpdates);
  EXPECT_EQ(families[1].samples[0].sum, 2.0 * kThreads * kUpdates);
}

}  // namespace
}  // namespace annulus

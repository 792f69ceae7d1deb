// The choice of tokens against the reference: the same ids, for every setting of the filters.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/kernels/cpu/cpu_test_util.h"

namespace annulus::testing {
namespace {

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();
constexpr double kLastUniform = 1 - 0x1p-53;

std::vector<int32_t> SampleBy(const OpTable& table, const TestMatrix& logits,
                              std::span<const SampleRow> rows) {
  TestMatrix overwritten = logits;
  DeviceBuffer tokens = BackendOf(table).AllocateHost(rows.size() * sizeof(int32_t)).value();
  auto* const ids = reinterpret_cast<int32_t*>(tokens.data());
  const auto stream = MakeStream(table, 1);
  EXPECT_TRUE(table.sample(*stream, {overwritten.view(), rows, ids}).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  EXPECT_TRUE(overwritten.PaddingUntouched());
  return {ids, ids + rows.size()};
}

using SampleTest = EveryTable;

TEST_P(SampleTest, ChoosesAsTheReference) {
  std::mt19937 random(7);
  const auto one_of = [&](auto... values) {
    const std::common_type_t<decltype(values)...> all[] = {values...};
    return all[random() % sizeof...(values)];
  };
  for (const int64_t vocabulary : {1, 2, 31, 255, 256, 257, 1000, 3001}) {
    if (kSanitized && vocabulary > 257) break;  // the emulation is many times slower then
    constexpr int64_t kRows = 40;
    TestMatrix logits(kRows, vocabulary, 3);
    logits.FillNormal(random, 4);
    std::vector<SampleRow> rows(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < vocabulary; ++i) {
        float& logit = logits.row(r)[i];
        if (r % 3 == 0) logit = std::round(logit);  // ties
        if (r % 4 == 0 && random() % 4 == 0) logit = one_of(kNoLogit, std::nanf(""), -200.0f);
      }
      rows[r].temperature = one_of(0.0f, 0.3f, 1.0f, 1.7f, 2.0f);
      rows[r].top_k = one_of(0, 0, 1, 2, 40, 300, 5000);
      rows[r].top_p = one_of(1.0f, 1.0f, 0.001f, 0.5f, 0.9f, 0.999999f);
      rows[r].min_p = one_of(0.0f, 0.0f, 0.02f, 0.5f, 1.0f);
      rows[r].uniform = one_of(0.0, kLastUniform, random() * 0x1p-32, random() * 0x1p-32);
    }
    const auto expected = SampleBy(Reference(), logits, rows);
    const auto actual = SampleBy(table(), logits, rows);
    for (int64_t r = 0; r < kRows; ++r) {
      const SampleRow& row = rows[r];
      EXPECT_EQ(actual[r], expected[r])
          << "of " << vocabulary << ", row " << r << ": temperature " << row.temperature
          << " top_k " << row.top_k << " top_p " << row.top_p << " min_p " << row.min_p
          << " uniform " << row.uniform;
    }
  }
}

// Weights whose sums are exact: a number drawn right at an edge belongs to the token behind it, and
// a share of top_p that is reached exactly needs no more.
TEST_P(SampleTest, EdgesBelongToTheTokenBehind) {
  constexpr int64_t kVocabulary = 300;
  std::vector<SampleRow> rows;
  std::vector<int32_t> expected;
  for (int32_t i = 0; i < 256; i += 17) {
    rows.push_back({1, 0, 1, 0, i / 256.0});  // in the order of ids
    expected.push_back(i);
    rows.push_back({1, 256, 1, 0, i / 256.0});
    expected.push_back(i);
    rows.push_back({1, 0, 0.5f, 0, i / 256.0});  // of the first 128
    expected.push_back(i / 2);
  }
  TestMatrix logits(static_cast<int64_t>(rows.size()), kVocabulary);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    std::fill_n(logits.row(r), 256, 2.5f);
    std::fill_n(logits.row(r) + 256, kVocabulary - 256, kNoLogit);
  }
  EXPECT_EQ(SampleBy(table(), logits, rows), expected);
}

TEST_P(SampleTest, RowsWithoutALogitGiveNoToken) {
  TestMatrix logits(4, 70);
  for (int64_t i = 0; i < 70; ++i) {
    logits.row(0)[i] = kNoLogit;
    logits.row(1)[i] = i % 2 == 0 ? kNoLogit : std::nanf("");
    logits.row(2)[i] = i == 69 ? -1e30f : kNoLogit;
    logits.row(3)[i] = i < 5 ? 1.0f : std::numeric_limits<float>::infinity();
  }
  const SampleRow greedy{};
  const SampleRow drawn{1, 0, 0.9f, 0, 0.7};
  EXPECT_EQ(SampleBy(table(), logits, std::vector{greedy, drawn, drawn, greedy}),
            (std::vector<int32_t>{-1, -1, 69, 5}));
}

TEST_P(SampleTest, NoRowsAreNoWork) {
  int32_t token = 7;
  float logit = 0;
  EXPECT_TRUE(table().sample(*MakeStream(table(), 1), {{&logit, 0, 1, 1}, {}, &token}).ok());
  EXPECT_EQ(token, 7);
}

ANNULUS_FOR_EVERY_TABLE(SampleTest);

}  // namespace
}  // namespace annulus::testing

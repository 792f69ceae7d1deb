// The choice of tokens against the reference: the same ids, for every setting of the filters and
// whatever is done to the logits before.
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
constexpr float kMostLogit = std::numeric_limits<float>::max();
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

SampleRow Drawn(int32_t top_k, float top_p, double uniform) {
  SampleRow row;
  row.temperature = 1;
  row.top_k = top_k;
  row.top_p = top_p;
  row.uniform = uniform;
  return row;
}

// What rows point to.
struct Lists {
  std::vector<LogitEdit> edits;
  std::vector<uint32_t> seen;
  std::vector<uint32_t> allowed;

  void PutInto(SampleRow& row) const {
    row.edits = edits;
    row.seen = seen;
    row.allowed = allowed;
  }
  void Allow(int64_t token, int64_t vocabulary) {
    allowed.resize(SeenWords(vocabulary));
    allowed[token / 32] |= uint32_t{1} << token % 32;
  }
  void See(int64_t token, int64_t vocabulary) {
    seen.resize(SeenWords(vocabulary));
    seen[token / 32] |= uint32_t{1} << token % 32;
  }
};

class SampleTest : public EveryTable {
 protected:
  template <class... T>
  std::common_type_t<T...> OneOf(T... values) {
    const std::common_type_t<T...> all[] = {values...};
    return all[random_() % sizeof...(values)];
  }

  SampleRow RandomRow() {
    SampleRow row;
    row.temperature = OneOf(0.0f, 0.3f, 1.0f, 1.7f, 2.0f);
    row.top_k = OneOf(0, 0, 1, 2, 40, 300, 5000);
    row.top_p = OneOf(1.0f, 1.0f, 0.001f, 0.5f, 0.9f, 0.999999f);
    row.min_p = OneOf(0.0f, 0.0f, 0.02f, 0.5f, 1.0f);
    row.uniform = OneOf(0.0, kLastUniform, random_() * 0x1p-32, random_() * 0x1p-32);
    row.penalties.repetition = OneOf(1.0f, 1.3f, 0.7f, 10.0f, 1e-45f);
    row.penalties.frequency = OneOf(0.0f, 0.1f, -0.3f, 2.0f);
    row.penalties.presence = OneOf(0.0f, 0.7f, -2.0f);
    return row;
  }

  // A share of the tokens, in one of the lists each.
  Lists RandomLists(int64_t vocabulary) {
    Lists lists;
    const double share = OneOf(0.0, 0.01, 0.3, 1.0);
    const bool seeing = random_() % 2 == 0;
    const bool masked = random_() % 2 == 0;
    const double allowed = OneOf(0.0, 0.02, 0.5, 1.0);
    if (masked) lists.Allow(static_cast<int64_t>(random_() % vocabulary), vocabulary);
    for (int32_t token = 0; token < vocabulary; ++token) {
      if (masked && random_() * 0x1p-32 < allowed) lists.Allow(token, vocabulary);
      if (random_() * 0x1p-32 >= share) continue;
      if (seeing && random_() % 2 == 0) {
        lists.See(token, vocabulary);
        continue;
      }
      lists.edits.push_back({token, OneOf(-1, 0, 1, 2, 77, 0x7fffffff),
                             OneOf(0.0f, 0.0f, 1.3f, -2.1f, 100.0f, -100.0f, kExcludedLogit)});
    }
    return lists;
  }

  std::mt19937 random_{7};
};

TEST_P(SampleTest, ChoosesAsTheReference) {
  for (const int64_t vocabulary : {1, 2, 31, 255, 256, 257, 1000, 3001}) {
    if (kSanitized && vocabulary > 257) break;  // the emulation is many times slower then
    constexpr int64_t kRows = 40;
    TestMatrix logits(kRows, vocabulary, 3);
    logits.FillNormal(random_, 4);
    std::vector<SampleRow> rows;
    std::vector<Lists> lists(kRows);
    for (int64_t r = 0; r < kRows; ++r) {
      for (int64_t i = 0; i < vocabulary; ++i) {
        float& logit = logits.row(r)[i];
        if (r % 3 == 0) logit = std::round(logit);  // ties
        if (r % 4 == 0 && random_() % 4 == 0) logit = OneOf(kNoLogit, std::nanf(""), -200.0f);
        if (r % 7 == 0 && random_() % 4 == 0) logit = OneOf(kMostLogit, -kMostLogit, 1e-40f);
      }
      rows.push_back(RandomRow());
      if (r % 5 == 0) continue;  // without lists
      lists[r] = RandomLists(vocabulary);
      lists[r].PutInto(rows[r]);
    }
    const auto expected = SampleBy(Reference(), logits, rows);
    const auto actual = SampleBy(table(), logits, rows);
    for (int64_t r = 0; r < kRows; ++r) {
      const SampleRow& row = rows[r];
      EXPECT_EQ(actual[r], expected[r])
          << "of " << vocabulary << ", row " << r << ": temperature " << row.temperature
          << " top_k " << row.top_k << " top_p " << row.top_p << " min_p " << row.min_p
          << " uniform " << row.uniform << " repetition " << row.penalties.repetition
          << " frequency " << row.penalties.frequency << " presence " << row.penalties.presence
          << " edits " << row.edits.size() << " seen " << row.seen.size() << " allowed "
          << row.allowed.size();
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
    rows.push_back(Drawn(0, 1, i / 256.0));  // in the order of ids
    expected.push_back(i);
    rows.push_back(Drawn(256, 1, i / 256.0));
    expected.push_back(i);
    rows.push_back(Drawn(0, 0.5f, i / 256.0));  // of the first 128
    expected.push_back(i / 2);
  }
  TestMatrix logits(static_cast<int64_t>(rows.size()), kVocabulary);
  for (int64_t r = 0; r < logits.rows(); ++r) {
    std::fill_n(logits.row(r), 256, 2.5f);
    std::fill_n(logits.row(r) + 256, kVocabulary - 256, kNoLogit);
  }
  EXPECT_EQ(SampleBy(table(), logits, rows), expected);
}

// By hand: a token is chosen where what is done to the logits says so, and no other.
TEST_P(SampleTest, LogitsAreAdjustedBeforeTheChoice) {
  struct Case {
    std::vector<float> logits;
    Penalties penalties;
    std::vector<LogitEdit> edits;
    std::vector<int32_t> seen;
    int32_t token;
  };
  const std::vector<Case> cases = {
      {{3, 2, 1}, {}, {}, {}, 0},
      {{3, 2, 1}, {}, {{0, -1, -1.5f}}, {}, 1},
      {{3, 2, 1}, {}, {{2, -1, 2.5f}}, {}, 2},
      {{3, 2, 1}, {}, {{0, -1, kExcludedLogit}, {1, 5, kExcludedLogit}}, {}, 2},
      {{3, 2, 1}, {2, 0, 0}, {}, {0}, 1},                    // 1.5 against 2
      {{3, 2, 1}, {2, 0, 0}, {{0, 0, 0}}, {1}, 0},           // 1.5 against 1, 1
      {{3, 2, 1}, {2, 0, 0}, {{0, -1, 0}}, {}, 0},           // not seen
      {{3, 2, 1}, {2, 0, 0}, {{0, 0, 2}}, {}, 0},            // the bias first: 2.5
      {{-3, -2, -2.5f}, {2, 0, 0}, {}, {1}, 2},              // negative: multiplied
      {{3, 2, 1}, {1, 0.5f, 0}, {{0, 3, 0}}, {}, 1},         // 1.5
      {{3, 2, 1}, {1, 0.5f, 0.6f}, {{0, 1, 0}}, {}, 1},      // 1.9
      {{3, 2, 1}, {1, 0.5f, 0.6f}, {{0, 0, 0}}, {}, 0},      // of the prompt alone
      {{kNoLogit, 2, 1}, {1, 0, -2}, {{0, 1, 100}}, {}, 1},  // stays excluded
      {{-kMostLogit, kNoLogit, kNoLogit}, {10, 2, 2}, {{0, 9, -100}}, {}, 0},  // stays included
      {{kMostLogit, kMostLogit, 1}, {1e-45f, 0, 0}, {}, {1, 2}, 0},            // all the greatest
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    Lists lists;
    lists.edits = c.edits;
    for (const int32_t token : c.seen) lists.See(token, 3);
    SampleRow row;
    row.penalties = c.penalties;
    lists.PutInto(row);
    TestMatrix logits(1, 3);
    std::copy(c.logits.begin(), c.logits.end(), logits.row(0));
    EXPECT_EQ(SampleBy(table(), logits, std::vector{row}).front(), c.token) << "case " << i;
  }
}

// By hand: what is not allowed is not chosen, whatever is done to its logit, and no filter counts
// it.
TEST_P(SampleTest, OnlyAllowedTokensAreChosen) {
  constexpr int64_t kVocabulary = 70;
  struct Case {
    std::vector<int32_t> allowed;
    std::vector<LogitEdit> edits;
    int32_t top_k;
    int32_t token;
  };
  const std::vector<Case> cases = {
      {{3}, {}, 0, 3},
      {{69, 5}, {}, 0, 5},
      {{69, 5}, {{5, -1, kExcludedLogit}}, 0, 69},
      {{4, 5}, {{0, -1, 100}, {5, -1, 100}}, 0, 5},
      {{40, 41, 69}, {}, 2, 40},  // the first two of those allowed
      {{7}, {{7, 1, kExcludedLogit}}, 0, kAllExcluded},
      {{}, {}, 0, kAllExcluded},
  };
  for (const float temperature : {0.0f, 1.0f}) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const Case& c = cases[i];
      Lists lists;
      lists.edits = c.edits;
      lists.allowed.resize(SeenWords(kVocabulary));
      for (const int32_t token : c.allowed) lists.Allow(token, kVocabulary);
      SampleRow row;
      row.temperature = temperature;
      row.top_k = c.top_k;
      row.uniform = 0.5;
      lists.PutInto(row);
      TestMatrix logits(1, kVocabulary);
      // Descending, and so far apart that a draw takes the greatest.
      for (int32_t t = 0; t < kVocabulary; ++t) logits.row(0)[t] = -60.0f * static_cast<float>(t);
      EXPECT_EQ(SampleBy(table(), logits, std::vector{row}).front(), c.token)
          << "case " << i << ", temperature " << temperature;
    }
  }
}

// Launches that are held back find the arrays of their own call, however long they have become.
TEST_P(SampleTest, StepsWhoseListsGrowAreReplayed) {
  constexpr int64_t kVocabulary = 500;
  constexpr int kCalls = 5;
  constexpr int kSteps = 30;
  const auto stream = MakeStream(table(), 1);
  DeviceBuffer tokens = BackendOf(table()).AllocateHost(kCalls * sizeof(int32_t)).value();
  auto* const ids = reinterpret_cast<int32_t*>(tokens.data());
  std::vector<Lists> lists(kCalls);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<int32_t> expected;
    std::vector<TestMatrix> all;
    for (int call = 0; call < kCalls; ++call) {
      all.emplace_back(1, kVocabulary).FillNormal(random_, 1);
    }
    const auto graph = stream->BeginGraph().value();
    for (int call = 0; call < kCalls; ++call) {
      // Of each call by another number of tokens, now and then by none.
      std::vector<LogitEdit>& edits = lists[call].edits;
      for (int i = step % 3 == 2 ? 0 : call; i > 0; --i) {
        const int32_t last = edits.empty() ? -1 : edits.back().token;
        edits.push_back({last + 1 + static_cast<int32_t>(random_() % 3), 1, OneOf(0.0f, 3.0f)});
      }
      if (call == 3 && step == 10) lists[call].See(499, kVocabulary);
      SampleRow row = RandomRow();
      lists[call].PutInto(row);
      expected.push_back(SampleBy(Reference(), all[call], std::vector{row}).front());
      std::vector<LogitEdit> gone = edits;
      row.edits = gone;
      ASSERT_TRUE(table().sample(*stream, {all[call].view(), {&row, 1}, ids + call}).ok());
      std::fill(gone.begin(), gone.end(), LogitEdit{});
    }
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(std::vector<int32_t>(ids, ids + kCalls), expected) << "step " << step;
  }
  const GraphCounts counts = stream->graph_counts();
  EXPECT_EQ(counts.whole, IsOfGpu(table()) ? kSteps : 0);
  EXPECT_EQ(counts.built, IsOfGpu(table()) ? 1 : 0);
  EXPECT_EQ(counts.cuts(), 0);
}

TEST_P(SampleTest, RowsWhoseTokensAreAllExcludedSaySo) {
  TestMatrix logits(4, 70);
  std::vector<SampleRow> rows(4);
  std::vector<Lists> lists(4);
  for (int64_t r = 0; r < 4; ++r) {
    for (int32_t i = 0; i < 70; ++i) {
      // 2: only one that is not excluded can be chosen; 3: none can be, excluded or not.
      const bool usable = r < 2 || (r == 2 && i == 66);
      logits.row(r)[i] = usable ? 1.5f : OneOf(kNoLogit, std::nanf(""));
      if (r != 2 || i != 66) lists[r].edits.push_back({i, 1, kExcludedLogit});
    }
    if (r % 2 == 1) rows[r].temperature = 1;
    lists[r].PutInto(rows[r]);
  }
  EXPECT_EQ(SampleBy(table(), logits, rows),
            (std::vector<int32_t>{kAllExcluded, kAllExcluded, 66, kNoUsableLogit}));
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
  const SampleRow drawn = Drawn(0, 0.9f, 0.7);
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

#include "engine/request/attention_details.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/support/thinned.h"

namespace annulus {
namespace {

constexpr int kMapSide = AttentionDetail::kSide;
constexpr int32_t kMapBlock = 64;

// Rows [begin, end) of a layer that attends everything.
LayerAttention ComputedRows(int32_t begin, int32_t end) {
  LayerAttention part;
  part.begin = begin;
  part.rows.resize(static_cast<size_t>(end - begin));
  std::iota(part.rows.begin(), part.rows.end(), begin);
  return part;
}

// Cells other than `expected` in the causal rows [begin, end) of the map.
int OtherCells(const AttentionDetail& detail, int begin, int end, int expected) {
  int others = 0;
  for (int row = begin; row < end; ++row) {
    for (int column = 0; column <= row; ++column) {
      others += detail.map[static_cast<size_t>(row) * kMapSide + column] == expected ? 0 : 1;
    }
  }
  return others;
}

// A block that is longer than a cell fills all cells that it covers: else a short prompt would look
// as if most of it had been left out.
TEST(AttentionDetails, ShortPromptsFillTheirMaps) {
  for (const int64_t prompt : {1, 40, 64, 200, 1000, 4096, 5000, 100'000}) {
    SCOPED_TRACE(::testing::Message() << prompt << " tokens");
    AttentionDetails details(2, 1, prompt, kMapBlock);
    details.Add(ComputedRows(0, static_cast<int32_t>(prompt)));
    const std::vector<AttentionDetail> made = details.Make();
    ASSERT_EQ(made.size(), 1u);
    EXPECT_EQ(OtherCells(made[0], 0, kMapSide, 255), 0);
    for (int row = 0; row < kMapSide; ++row) {
      for (int column = row + 1; column < kMapSide; ++column) {
        EXPECT_EQ(made[0].map[static_cast<size_t>(row) * kMapSide + column], 0) << row << column;
      }
    }
    EXPECT_EQ(made[0].computed, std::vector<uint8_t>(kMapSide, 255));
  }
}

TEST(AttentionDetails, TellsWhichRowsWereComputed) {
  AttentionDetails details(2, 1, 1024, kMapBlock);
  details.Add(ComputedRows(512, 768));
  details.Add(ComputedRows(800, 1024));
  details.Add(ComputedRows(1024, 1030));  // of the answer, which no map shows
  const AttentionDetail detail = details.Make().at(0);
  EXPECT_EQ(OtherCells(detail, 0, 32, 0), 0);
  EXPECT_EQ(OtherCells(detail, 32, kMapSide, 255), 0);
  for (int row = 0; row < kMapSide; ++row) {
    const int block = row / 4;  // four cells each
    const int expected = block < 8 ? 0 : block == 12 ? 128 : 255;
    EXPECT_EQ(detail.computed[row], expected) << row;
  }
}

// One row of a long prompt is told from none, and a row that was computed twice is one.
TEST(AttentionDetails, TheLeastIsToldFromNothing) {
  AttentionDetails details(1, 1, 1 << 20, kMapBlock);
  details.Add(ComputedRows(0, 1));
  for (int turn = 0; turn < 2; ++turn) details.Add(ComputedRows(1 << 14, 2 << 14));
  const AttentionDetail detail = details.Make().at(0);
  EXPECT_EQ(detail.computed[0], 1);
  EXPECT_EQ(detail.computed[1], 255);
  EXPECT_EQ(detail.computed[2], 0);
}

TEST(AttentionDetails, ListsPaintTheBlocksThatTheyName) {
  AttentionDetails details(1, 1, 256, kMapBlock);
  LayerAttention part = ComputedRows(192, 256);
  BlockPattern lists;
  lists.shape = {.head_groups = 1, .first_block = 3, .blocks = 1};
  lists.offsets = {0, 2};
  lists.chosen = {1, 3};
  part.lists = lists;
  details.Add(part);
  const AttentionDetail detail = details.Make().at(0);
  for (int column = 0; column < kMapSide; ++column) {
    const bool chosen = (column >= 16 && column < 32) || column >= 48;
    EXPECT_EQ(detail.map[63 * kMapSide + column], chosen ? 255 : 0) << column;
  }
}

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;

// The plainest way: every key block of every row, one by one.
struct PlainMap {
  PlainMap(int64_t prompt_tokens, int32_t block_tokens)
      : prompt(prompt_tokens), block(block_tokens), chosen(kKvHeads) {
    causal.resize(kMapSide * kMapSide);
    for (auto& cells : chosen) cells.resize(kMapSide * kMapSide);
  }
  // First and last cell of a block, along a side.
  std::pair<int64_t, int64_t> Cells(int32_t at) const {
    const auto cell = [&](int64_t token) { return std::min(token, prompt) * kMapSide / prompt; };
    const int64_t begin = cell(int64_t{at} * block);
    return {begin, std::max(begin, cell((int64_t{at} + 1) * block) - 1)};
  }
  void AddTo(std::vector<double>& cells, int32_t query, int32_t key, double value) const {
    const auto [first_row, last_row] = Cells(query);
    const auto [first_column, last_column] = Cells(key);
    for (int64_t row = first_row; row <= last_row; ++row) {
      for (int64_t column = first_column; column <= std::min(last_column, row); ++column) {
        cells[static_cast<size_t>(row * kMapSide + column)] += value;
      }
    }
  }
  void Add(const LayerAttention& part) {
    std::map<int32_t, std::vector<int32_t>> of_block;
    for (const int32_t row : part.rows) of_block[row / block].push_back(row);
    for (const auto& [query, rows] : of_block) {
      if (int64_t{query} * block >= prompt) continue;
      for (int32_t key = 0; key <= query; ++key) {
        AddTo(causal, query, key, static_cast<double>(rows.size()));
        for (int head = 0; head < kHeads; ++head) AddPair(part, query, key, rows, head);
      }
    }
  }
  void AddPair(const LayerAttention& part, int32_t query, int32_t key,
               const std::vector<int32_t>& rows, int head) {
    const int kv_head = head * kKvHeads / kHeads;
    const auto count = static_cast<double>(rows.size());
    double share = count;
    if (!part.branches.empty()) {
      share = 0;
      for (const DilatedBranch& branch : part.branches) {
        if (key < rows.front() / branch.segment * (branch.segment / block)) continue;
        const auto keeps = std::count_if(rows.begin(), rows.end(), [&](int32_t row) {
          return row % branch.rate == head % branch.rate;
        });
        share += static_cast<double>(keeps) / branch.rate;
      }
      share = std::min(share, count);
    } else if (part.lists.has_value()) {
      const auto keys = part.lists->keys(kv_head, query);
      if (!std::binary_search(keys.begin(), keys.end(), key)) share = 0;
    }
    AddTo(chosen[kv_head], query, key, share * kKvHeads / kHeads);
  }
  // Before it is rounded to an integer.
  double Value(int kv_head, size_t cell) const {
    return causal[cell] == 0 ? 0 : 255 * chosen[kv_head][cell] / causal[cell];
  }

  int64_t prompt;
  int32_t block;
  std::vector<double> causal;
  std::vector<std::vector<double>> chosen;  // [kv head]
};

class AttentionDetailsRanges : public ::testing::Test {
 protected:
  int32_t Draw(int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random_);
  }

  // Lists of random blocks, the diagonal last.
  BlockPattern Lists(int32_t first_block, int32_t blocks, int32_t block_tokens) {
    BlockPattern lists;
    lists.shape = {kKvHeads, first_block, blocks};
    lists.block_tokens = block_tokens;
    lists.offsets.push_back(0);
    for (int head = 0; head < kKvHeads; ++head) {
      for (int32_t query = first_block; query < first_block + blocks; ++query) {
        for (int32_t key = 0; key < query; ++key) {
          if (Draw(0, 3) == 0) lists.chosen.push_back(key);
        }
        lists.chosen.push_back(query);
        lists.offsets.push_back(std::ssize(lists.chosen));
      }
    }
    return lists;
  }

  std::mt19937_64 random_{testing::TestSeed()};
};

TEST_F(AttentionDetailsRanges, MapsAreThoseOfThePlainLoop) {
  for (int round = 0; round < 60; ++round) {
    const int32_t block = 1 << Draw(2, 6);
    const int32_t prompt = Draw(1, round % 2 == 0 ? 100 * block : 5 * block);
    SCOPED_TRACE(::testing::Message() << "round " << round << ", block " << block << ", prompt "
                                      << prompt << ", seed " << testing::TestSeed());
    AttentionDetails details(kHeads, kKvHeads, prompt, block);
    PlainMap plain(prompt, block);
    const int kind = Draw(0, 2);
    // The answer's first rows too, which are not drawn.
    for (int32_t begin = 0; begin < prompt + 3 * block;) {
      const int32_t end = begin + Draw(1, 40 * block);
      LayerAttention part;
      part.rows.resize(static_cast<size_t>(end - begin));
      std::iota(part.rows.begin(), part.rows.end(), begin);
      const int32_t first_block = begin / block;
      if (kind == 1) part.lists = Lists(first_block, (end - 1) / block - first_block + 1, block);
      if (kind == 2) part.branches = {{2 * block, 1}, {4 * block, 2}, {16 * block, 4}};
      details.Add(part);
      plain.Add(part);
      begin = end;
    }
    const std::vector<AttentionDetail> made = details.Make();
    ASSERT_EQ(made.size(), size_t{kKvHeads});
    for (int head = 0; head < kKvHeads; ++head) {
      for (size_t cell = 0; cell < made[head].map.size(); ++cell) {
        ASSERT_NEAR(made[head].map[cell], plain.Value(head, cell), 0.501) << head << ", " << cell;
      }
    }
  }
}

// With each key block on its own this is 2^37 additions, in the coordinator's thread.
TEST_F(AttentionDetailsRanges, ALongPromptCostsNoMoreThanAShortOne) {
  constexpr int32_t kBlock = 16;
  constexpr int32_t kPrompt = 1 << 30;
  const auto begun = std::chrono::steady_clock::now();
  for (const bool dilated : {false, true}) {
    AttentionDetails details(kHeads, kKvHeads, kPrompt, kBlock);
    LayerAttention part;
    part.rows.resize(8192);
    std::iota(part.rows.begin(), part.rows.end(), kPrompt - 8192);
    if (dilated) part.branches = {{kBlock, 1}, {kPrompt / 2, 4}};
    details.Add(part);
    const std::vector<AttentionDetail> made = details.Make();
    EXPECT_GT(made.at(0).map.back(), 0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
}

}  // namespace
}  // namespace annulus

#include "engine/attention_details.h"

#include <gtest/gtest.h>

#include <numeric>

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

}  // namespace
}  // namespace annulus

#include "client/format/table.h"

#include <gtest/gtest.h>

namespace annulus::client {
namespace {

TEST(Table, AlignsColumns) {
  Table table({{"NAME"}, {"SIZE", Table::Align::kRight}, {"STATE"}});
  table.AddRow({"a", "1.5 KiB", "up"});
  table.AddRow({"é-long-name", "3 B", ""});
  EXPECT_EQ(table.Render(),
            "NAME            SIZE  STATE\n"
            "a            1.5 KiB  up\n"
            "é-long-name      3 B\n");
}

TEST(Table, BecomesBlocksWhereItIsTooWide) {
  Table table({{"NAME"}, {"SIZE", Table::Align::kRight}, {"ALL"}});
  table.AddRow({"a", "1.5 KiB", "up"});
  table.AddRow({"é-long-name", "3 B", ""});
  EXPECT_EQ(table.Render(25), table.Render());
  EXPECT_EQ(table.Render(24),
            "NAME  a\nSIZE  1.5 KiB\nALL   up\n\n"
            "NAME  é-long-name\nSIZE  3 B\nALL\n");
  EXPECT_EQ(Table({{"A"}, {"B"}}).Render(1), "A  B\n");
}

TEST(Table, WithoutRowsIsItsHeader) { EXPECT_EQ(Table({{"A"}, {"B"}}).Render(), "A  B\n"); }

}  // namespace
}  // namespace annulus::client

#include "bench/report/row.h"

#include <cmath>
#include <sstream>

#include "gtest/gtest.h"

namespace annulus::bench {
namespace {

Row Sample(int64_t tokens, double rate) {
  Row row;
  row.Text("phase", "a\"b").Int("tokens", tokens).Number("rate", rate, Row::Unit::kPerSecond);
  row.OnlyJson().Number("detail", 0.1);
  return row;
}

TEST(Row, IsOneJsonObjectInTheOrderOfItsFields) {
  EXPECT_EQ(Sample(2048, 1.5).Json(), R"({"phase":"a\"b","tokens":2048,"rate":1.5,"detail":0.1})");
  EXPECT_EQ(Row().Number("x", std::nan("")).Json(), R"({"x":null})");
}

TEST(RowWriter, WritesOneLineOfJsonPerRowAtOnce) {
  std::ostringstream out;
  RowWriter writer({.out = out, .format = RowOutput::Format::kJson});
  writer.Write(Sample(1, 2));
  EXPECT_EQ(out.str(), Sample(1, 2).Json() + "\n");
}

TEST(RowWriter, WritesATableAndANewOneWhereTheColumnsChange) {
  std::ostringstream out;
  std::ostringstream copy;
  {
    RowWriter writer({.out = out, .json_copy = &copy});
    writer.Write(Sample(65536, 963e9));
    writer.Write(Sample(1, 12.5));
    writer.Write(Row().Int("tokens", 3));
  }
  EXPECT_EQ(out.str(),
            "phase  tokens   rate\n"
            "a\"b    65,536  963 G\n"
            "a\"b         1   12.5\n"
            "\n"
            "tokens\n"
            "     3\n");
  EXPECT_EQ(copy.str(),
            Sample(65536, 963e9).Json() + "\n" + Sample(1, 12.5).Json() + "\n{\"tokens\":3}\n");
}

TEST(RowWriter, WritesMarkdown) {
  std::ostringstream out;
  RowWriter writer({.out = out, .format = RowOutput::Format::kMarkdown});
  writer.Write(Sample(2048, 1.5));
  writer.Finish();
  EXPECT_EQ(out.str(),
            "| phase | tokens | rate |\n"
            "|---|--:|--:|\n"
            "| a\"b | 2,048 | 1.50 |\n");
}

}  // namespace
}  // namespace annulus::bench

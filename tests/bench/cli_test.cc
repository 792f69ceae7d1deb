#include "bench/cli.h"

#include <set>
#include <sstream>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

struct Output {
  int code = 0;
  std::string out;
  std::string err;

  // One JSON object per line of standard output.
  std::vector<nlohmann::json> Rows() const {
    std::vector<nlohmann::json> rows;
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
      rows.push_back(nlohmann::json::parse(line));
    }
    return rows;
  }
};

Output Bench(const std::vector<std::string>& arguments) {
  std::ostringstream out;
  std::ostringstream err;
  const int code = RunBench(arguments, out, err);
  return {code, out.str(), err.str()};
}

TEST(BenchCli, HelpSucceedsAndMisuseIsTwo) {
  EXPECT_EQ(Bench({"--help"}).code, 0);
  EXPECT_NE(Bench({"peak", "--help"}).out.find("--threads"), std::string::npos);
  for (const std::vector<std::string>& misuse : std::vector<std::vector<std::string>>{
           {}, {"peek"}, {"peak", "--threads", "0"}, {"peak", "--unknown"}}) {
    const Output output = Bench(misuse);
    EXPECT_EQ(output.code, 2);
    EXPECT_TRUE(output.out.empty());
    EXPECT_FALSE(output.err.empty());
  }
}

TEST(BenchCli, PeakPrintsOneRowForEachKindAndNumberOfThreads) {
  const Output output = Bench({"peak", "--json", "--rounds", "1", "--threads", "2"});
  ASSERT_EQ(output.code, 0) << output.err;
  std::set<std::string> kinds;
  for (const nlohmann::json& row : output.Rows()) {
    kinds.insert(row.at("peak").get<std::string>());
    EXPECT_GT(row.at("rate").get<double>(), 0);
    EXPECT_GE(row.at("threads").get<int>(), 1);
    EXPECT_FALSE(row.at("unit").get<std::string>().empty());
    EXPECT_FALSE(row.at("instructions").get<std::string>().empty());
  }
  for (const char* kind : {"f32", "exp", "memory_read"}) EXPECT_TRUE(kinds.contains(kind)) << kind;
  EXPECT_EQ(output.Rows().size(), 2 * kinds.size());
}

}  // namespace
}  // namespace annulus

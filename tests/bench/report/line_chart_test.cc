#include "bench/report/line_chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace annulus::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(LineChart, PlacesPointsOnLogarithmicAxes) {
  const std::string svg = DrawLineCharts({{"A <title>",
                                           "tokens",
                                           "seconds",
                                           {{"slow", {{1024, 0.01}, {4096, 1}}},
                                            {"fast", {{1024, 0.001}, {4096, 0.1}}},
                                            {"none", {}}}}});
  EXPECT_THAT(svg, HasSubstr("A &lt;title&gt;"));
  // x: 2^10 to 2^12 over 330 from 64; y: 10^-3 to 1 over 310 down to 358.
  EXPECT_THAT(svg, HasSubstr("M64.0 254.7L394.0 48.0"));
  EXPECT_THAT(svg, HasSubstr("M64.0 358.0L394.0 151.3"));
  EXPECT_THAT(svg, HasSubstr(">1,024</text>"));
  EXPECT_THAT(svg, HasSubstr(">0.001</text>"));
  EXPECT_LT(svg.find(">slow</text>"), svg.find(">fast</text>"));
  EXPECT_THAT(svg, Not(HasSubstr("none</text>")));
}

TEST(LineChart, LinesOfTheSameColorDifferInTheirDashes) {
  LineChart chart{"many", "x", "y", {}};
  for (int i = 0; i < 14; ++i) chart.lines.push_back({std::to_string(i), {{1, 1 + i}, {2, 1 + i}}});
  const std::string svg = DrawLineCharts({chart});
  size_t dashed = 0;
  for (size_t at = 0; (at = svg.find("stroke-dasharray", at)) != std::string::npos; ++at) ++dashed;
  EXPECT_EQ(dashed, 4u);  // two lines, and their legends
}

TEST(LineChart, BearsOnePointAndNone) {
  EXPECT_THAT(DrawLineCharts({{"one", "x", "y", {{"line", {{5, 5}}}}}, {"empty", "x", "y", {}}}),
              Not(HasSubstr("nan")));
  EXPECT_THAT(DrawLineCharts({}), HasSubstr("width=\"0\""));
}

}  // namespace
}  // namespace annulus::bench

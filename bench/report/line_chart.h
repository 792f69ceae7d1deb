#ifndef ANNULUS_BENCH_REPORT_LINE_CHART_H_
#define ANNULUS_BENCH_REPORT_LINE_CHART_H_

#include <string>
#include <utility>
#include <vector>

namespace annulus::bench {

// Lines on logarithmic axes.
struct LineChart {
  struct Line {
    std::string name;
    std::vector<std::pair<double, double>> points;  // x and y above 0, x ascending
  };
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Line> lines;  // at most 12 have colours of their own
};

// Draws the charts side by side as an SVG document. Each has a legend that names the lines in the
// order of their last points. Charts without a point are left out.
std::string DrawLineCharts(const std::vector<LineChart>& charts);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_LINE_CHART_H_

#include "bench/report/line_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus::bench {
namespace {

constexpr int kWidth = 560;  // of a chart
constexpr int kHeight = 420;
constexpr int kLeft = 64;  // of the plot, within its chart
constexpr int kTop = 48;
constexpr int kPlotWidth = 330;
constexpr int kPlotHeight = 310;
constexpr std::array<const char*, 12> kColors = {"#172033", "#2563eb", "#d97706", "#059669",
                                                 "#db2777", "#7c3aed", "#0891b2", "#65a30d",
                                                 "#b91c1c", "#78716c", "#a78bfa", "#f472b6"};

const char* ColorOf(size_t line) { return kColors[line % kColors.size()]; }

// Beyond the colors, lines are dashed.
std::string StrokeOf(size_t line) {
  return absl::StrFormat("stroke=\"%s\"%s", ColorOf(line),
                         line < kColors.size() ? "" : " stroke-dasharray=\"4 3\"");
}

// A logarithmic axis over whole powers of `base`.
class Axis {
 public:
  Axis(double base, double low, double high) : base_(base) {
    first_ = static_cast<int>(std::floor(Log(low) + 1e-9));
    last_ = std::max(first_ + 1, static_cast<int>(std::ceil(Log(high) - 1e-9)));
  }

  double Place(double value) const { return (Log(value) - first_) / (last_ - first_); }
  std::vector<double> Ticks() const {
    std::vector<double> ticks;
    for (int power = first_; power <= last_; ++power) ticks.push_back(std::pow(base_, power));
    return ticks;
  }

 private:
  double Log(double value) const { return std::log(value) / std::log(base_); }

  double base_;
  int first_;
  int last_;
};

std::string TickText(double value) {
  return value >= 1 ? client::FormatCount(std::llround(value)) : absl::StrFormat("%g", value);
}

class ChartText {
 public:
  ChartText(const LineChart& chart, int left, const Axis& x, const Axis& y)
      : chart_(chart), left_(left + kLeft), x_(x), y_(y) {}

  std::string Draw() {
    absl::StrAppendFormat(&text_,
                          "<text x=\"%d\" y=\"26\" font-size=\"15\" font-weight=\"600\" "
                          "fill=\"#172033\">%s</text>\n",
                          left_, client::EscapeMarkup(chart_.title));
    DrawAxes();
    std::vector<size_t> order;
    for (size_t i = 0; i < chart_.lines.size(); ++i) {
      if (chart_.lines[i].points.empty()) continue;
      order.push_back(i);
      DrawLine(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return chart_.lines[a].points.back().second > chart_.lines[b].points.back().second;
    });
    for (size_t i = 0; i < order.size(); ++i) DrawLegend(order[i], static_cast<int>(i));
    return text_;
  }

 private:
  double PlaceX(double value) const { return left_ + x_.Place(value) * kPlotWidth; }
  double PlaceY(double value) const { return kTop + (1 - y_.Place(value)) * kPlotHeight; }

  void DrawAxes() {
    for (const double tick : y_.Ticks()) {
      absl::StrAppendFormat(&text_,
                            "<path d=\"M%d %.1fH%d\" stroke=\"#dde3ec\"/><text x=\"%d\" y=\"%.1f\" "
                            "text-anchor=\"end\">%s</text>\n",
                            left_, PlaceY(tick), left_ + kPlotWidth, left_ - 6, PlaceY(tick) + 4,
                            TickText(tick));
    }
    const std::vector<double> ticks = x_.Ticks();
    for (size_t i = 0; i < ticks.size(); ++i) {
      absl::StrAppendFormat(&text_, "<path d=\"M%.1f %dV%d\" stroke=\"#eef1f6\"/>\n",
                            PlaceX(ticks[i]), kTop, kTop + kPlotHeight);
      if (i % 2 == 1) continue;  // numbers need room
      absl::StrAppendFormat(&text_, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                            PlaceX(ticks[i]), kTop + kPlotHeight + 18, TickText(ticks[i]));
    }
    absl::StrAppendFormat(&text_,
                          "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n"
                          "<text x=\"%d\" y=\"%d\">%s</text>\n",
                          left_ + kPlotWidth / 2, kTop + kPlotHeight + 38,
                          client::EscapeMarkup(chart_.x_label), left_, kTop - 8,
                          client::EscapeMarkup(chart_.y_label));
  }

  void DrawLine(size_t line) {
    std::string path;
    for (const auto& [x, y] : chart_.lines[line].points) {
      absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", PlaceX(x), PlaceY(y));
      absl::StrAppendFormat(&text_, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                            PlaceX(x), PlaceY(y), ColorOf(line));
    }
    absl::StrAppendFormat(&text_, "<path d=\"%s\" fill=\"none\" %s stroke-width=\"2\"/>\n", path,
                          StrokeOf(line));
  }

  void DrawLegend(size_t line, int place) {
    const int x = left_ + kPlotWidth + 16;
    const int y = kTop + 14 + place * 20;
    absl::StrAppendFormat(&text_,
                          "<path d=\"M%d %dh18\" %s stroke-width=\"3\"/>"
                          "<text x=\"%d\" y=\"%d\" fill=\"#172033\">%s</text>\n",
                          x, y - 4, StrokeOf(line), x + 24, y,
                          client::EscapeMarkup(chart_.lines[line].name));
  }

  const LineChart& chart_;
  const int left_;
  const Axis& x_;
  const Axis& y_;
  std::string text_;
};

// Charts side by side, from the left.
std::string DrawChart(const LineChart& chart, int left) {
  double x_low = std::numeric_limits<double>::infinity(), x_high = 0;
  double y_low = x_low, y_high = 0;
  for (const LineChart::Line& line : chart.lines) {
    for (const auto& [x, y] : line.points) {
      x_low = std::min(x_low, x);
      x_high = std::max(x_high, x);
      y_low = std::min(y_low, y);
      y_high = std::max(y_high, y);
    }
  }
  if (x_high == 0) return "";
  return ChartText(chart, left, Axis(2, x_low, x_high), Axis(10, y_low, y_high)).Draw();
}

}  // namespace

std::string DrawLineCharts(const std::vector<LineChart>& charts) {
  std::string body;
  int width = 0;
  for (const LineChart& chart : charts) {
    const std::string text = DrawChart(chart, width);
    if (!text.empty()) width += kWidth;
    body += text;
  }
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "viewBox=\"0 0 %d %d\" font-size=\"11\" fill=\"#647085\" "
      "font-family=\"system-ui,'DejaVu Sans',sans-serif\">\n"
      "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n%s</svg>\n",
      width, kHeight, width, kHeight, width, kHeight, body);
}

}  // namespace annulus::bench

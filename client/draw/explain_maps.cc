#include "client/draw/explain_maps.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "client/draw/attention_picture.h"
#include "client/draw/axis.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// The value to colour for one layer and head; nullopt if unknown.
using ValueOf = absl::FunctionRef<std::optional<double>(const v1::AttentionDetail&)>;

// The smallest and the largest of some values.
struct Span {
  void Add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  std::string Text() const {
    const std::string low = FormatShare(least), high = FormatShare(most);
    return low == high ? low : absl::StrCat(low, " to ", high);
  }

  double least = 1;
  double most = 0;
};

// The range from the smallest to the largest known value.
struct Range : Span {
  Range(const v1::AttentionReport& report, ValueOf value_of) {
    for (const v1::AttentionDetail& detail : report.details()) {
      const std::optional<double> value = value_of(detail);
      if (value.has_value()) Add(*value);
    }
  }

  int Step(double value) const {
    if (most <= least) return CellScale::kSteps / 2;
    const double share = (value - least) / (most - least);
    return 1 + static_cast<int>(std::lround(share * (CellScale::kSteps - 1)));
  }
};

std::string Swatch(Color color) {
  return absl::StrCat("<i style=\"background:", ColorText(color), "\"></i>");
}

std::string Swatches(int first) {
  std::string html;
  for (int step = first; step <= CellScale::kSteps; ++step)
    html += Swatch(CellScale::ColorOf(step));
  return html;
}

std::string HeatLegend(const Range& range, bool gaps) {
  const std::string unknown =
      gaps ? absl::StrCat(" &ensp; ", Swatch(kLeftOut), " not known") : std::string();
  if (range.most <= range.least) {
    return absl::StrCat("<p class=\"legend\">", Swatch(CellScale::ColorOf(CellScale::kSteps / 2)),
                        " all ", FormatShare(range.most), unknown, "</p>\n");
  }
  return absl::StrCat("<p class=\"legend\">", FormatShare(range.least), " ", Swatches(1), " ",
                      FormatShare(range.most), unknown, "</p>\n");
}

// Draws one value per layer (rows) and head (columns) as a colour.
std::string Heat(const v1::AttentionReport& report, ValueOf value_of) {
  constexpr int kCell = 22;
  constexpr int kLeft = 74;
  constexpr int kTop = 26;
  const Range range(report, value_of);
  int rows = 0;
  int heads = 0;
  bool gaps = false;
  for (int i = 0; i < report.details_size(); ++i) {
    const v1::AttentionDetail& detail = report.details(i);
    if (i == 0 || detail.layer() != report.details(i - 1).layer()) ++rows;
    heads = std::max(heads, detail.kv_head() + 1);
    gaps = gaps || !value_of(detail).has_value();
  }
  const int width = kLeft + std::max(heads * kCell, 110) + 12;
  const int height = kTop + rows * kCell + 12;
  std::string svg = absl::StrFormat(
      "<div class=\"scroll\"><svg class=\"heat\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
      "font-size=\"11\" fill=\"#647085\">\n<text x=\"%d\" y=\"17\">%s</text>\n",
      width, height, width, height, kLeft,
      heads == 1 ? "head 0" : absl::StrCat("heads 0 to ", heads - 1));
  int labelled = -1;
  int row = -1;
  for (const v1::AttentionDetail& detail : report.details()) {
    const std::optional<double> value = value_of(detail);
    // The server does not report layers that are dense in any case; they have no row.
    if (detail.layer() != labelled) {
      labelled = detail.layer();
      ++row;
      absl::StrAppendFormat(&svg, "<text x=\"12\" y=\"%d\">layer %d</text>\n",
                            kTop + row * kCell + 15, labelled);
    }
    const int y = kTop + row * kCell;
    absl::StrAppendFormat(
        &svg,
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\">"
        "<title>layer %d, head %d: %s</title></rect>\n",
        kLeft + detail.kv_head() * kCell, y, kCell - 2, kCell - 2,
        ColorText(value.has_value() ? CellScale::ColorOf(range.Step(*value)) : kLeftOut),
        detail.layer(), detail.kv_head(), value.has_value() ? FormatShare(*value) : "not known");
  }
  return absl::StrCat(HeatLegend(range, gaps), svg, "</svg></div>\n");
}

absl::Status CheckDetail(const v1::AttentionDetail& detail) {
  constexpr int kMost = 1 << 16;
  for (const int number : {detail.layer(), detail.kv_head()}) {
    if (number >= 0 && number < kMost) continue;
    return absl::InternalError(absl::StrCat("the server describes layer ", detail.layer(),
                                            ", head ", detail.kv_head(), "; allowed are 0 to ",
                                            kMost - 1));
  }
  const auto side = static_cast<size_t>(std::lround(std::sqrt(detail.map().size())));
  if (side == 0 || detail.map().size() != side * side) {
    return absl::InternalError(absl::StrCat("the server sent a map of ", detail.map().size(),
                                            " cells, which is not a square number"));
  }
  if (!detail.computed().empty() && detail.computed().size() != side) {
    return absl::InternalError(absl::StrCat("the server sent a map of ", side, " rows with ",
                                            detail.computed().size(), " marks of computed rows"));
  }
  return absl::OkStatus();
}

// Layers and heads with the same map.
struct SharedMap {
  const v1::AttentionDetail* first = nullptr;
  std::map<int, std::vector<int>> heads;  // by layer, ascending
  Span density;
  Span coverage;
  bool sampled = false;  // whether the coverage of any is known
};

// In the order of their first layers and heads.
std::vector<SharedMap> ShareMaps(const v1::AttentionReport& report) {
  std::vector<SharedMap> shared;
  std::map<std::pair<absl::string_view, absl::string_view>, size_t> known;
  for (const v1::AttentionDetail& detail : report.details()) {
    const auto [at, is_new] = known.try_emplace({detail.map(), detail.computed()}, shared.size());
    if (is_new) shared.emplace_back().first = &detail;
    SharedMap& map = shared[at->second];
    map.heads[detail.layer()].push_back(detail.kv_head());
    map.density.Add(detail.density());
    if (detail.has_sampled_coverage()) map.coverage.Add(detail.sampled_coverage());
    map.sampled = map.sampled || detail.has_sampled_coverage();
  }
  return shared;
}

// "layer 3, heads 0 to 7", or for several layers "layers 0 to 4, heads 0 to 7; layer 5, head 1".
std::string Names(const std::map<int, std::vector<int>>& heads) {
  std::vector<std::string> names;
  for (auto at = heads.begin(); at != heads.end();) {
    std::vector<int> layers;
    const std::vector<int>& same = at->second;
    for (; at != heads.end() && at->second == same; ++at) layers.push_back(at->first);
    names.push_back(absl::StrCat(layers.size() == 1 ? "layer " : "layers ", FormatNumbers(layers),
                                 same.size() == 1 ? ", head " : ", heads ", FormatNumbers(same)));
  }
  return absl::StrJoin(names, "; ");
}

// A map with ticks beside and below it.
absl::StatusOr<std::string> Map(const SharedMap& shared, int64_t prompt_tokens,
                                const CellScale& scale) {
  const v1::AttentionDetail& detail = *shared.first;
  const std::string names = Names(shared.heads);
  constexpr int kSquare = 160;
  constexpr int kAdvance = 6;  // upper bound for the width of a digit
  const int side = static_cast<int>(std::lround(std::sqrt(detail.map().size())));
  const auto png = EncodePng(DrawCells(detail.map(), detail.computed(), side, scale));
  if (!png.ok()) return png.status();
  const std::vector<int64_t> ticks = AxisTicks(prompt_tokens, 3);
  const std::string last = FormatCount(ticks.back());
  const int left = static_cast<int>(last.size()) * kAdvance + 6;
  const int width = left + kSquare + static_cast<int>(last.size()) * kAdvance / 2;
  std::string svg = absl::StrFormat(
      "<figure><svg class=\"map\" width=\"%d\" height=\"200\" viewBox=\"0 -14 %d 200\" "
      "role=\"img\" "
      "aria-label=\"blocks of %s\">\n<image x=\"%d\" width=\"%d\" height=\"%d\" "
      "href=\"data:image/png;base64,%s\"/>\n<text y=\"-5\">queries (tokens)</text>\n"
      "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">keys (tokens)</text>\n",
      width, width, names, left, kSquare, kSquare, absl::Base64Escape(*png), left + kSquare / 2,
      kSquare + 24);
  for (const int64_t tick : ticks) {
    const int at = static_cast<int>(tick * kSquare / std::max<int64_t>(1, prompt_tokens));
    const std::string label = FormatCount(tick);
    absl::StrAppendFormat(&svg,
                          "<path d=\"M%d %dh-3M%d %dv3\"/><text x=\"%d\" y=\"%d\" "
                          "text-anchor=\"end\">%s</text><text x=\"%d\" y=\"%d\" "
                          "text-anchor=\"%s\">%s</text>\n",
                          left, at, left + at, kSquare, left - 5, at + (tick == 0 ? 7 : 3), label,
                          left + at, kSquare + 12, tick == 0 ? "start" : "middle", label);
  }
  std::string caption = absl::StrCat(names, "<br>density ", shared.density.Text());
  if (shared.sampled) absl::StrAppend(&caption, ", coverage ", shared.coverage.Text());
  return absl::StrCat(svg, "</svg><figcaption>", caption, "</figcaption></figure>\n");
}

std::string MapsLegend(const CellScale& scale, bool gaps) {
  return absl::StrCat(
      "<p class=\"legend\">", Swatch(kLeftOut), " left out &ensp; ",
      Swatches(scale.uniform() ? CellScale::kSteps : 1),
      scale.uniform() ? " attended: " : " attended: above 0% to ", scale.MostText(), " of a cell",
      gaps ? absl::StrCat(" &ensp; <i style=\"background:repeating-linear-gradient(135deg,",
                          ColorText(kHatch), " 0 2px,", ColorText(kNotComputed),
                          " 2px 5px)\"></i> not computed by this request: reused or "
                          "not needed")
           : "",
      "</p>\n");
}

absl::StatusOr<std::string> Maps(const v1::AttentionReport& report, int64_t prompt_tokens) {
  CellScale scale;
  bool gaps = false;
  for (const v1::AttentionDetail& detail : report.details()) {
    scale.Add(detail.map());
    gaps = gaps || detail.computed().find('\0') != std::string::npos;
  }
  std::string html = absl::StrCat(
      "<h2>Chosen blocks</h2>\n<p>Queries go down and keys across; the prompt begins at the top "
      "left.</p>\n",
      MapsLegend(scale, gaps), "<div class=\"maps\">\n");
  for (const SharedMap& shared : ShareMaps(report)) {
    const auto map = Map(shared, prompt_tokens, scale);
    if (!map.ok()) return map.status();
    html += *map;
  }
  return absl::StrCat(html, "</div>\n");
}

}  // namespace

absl::StatusOr<std::string> ExplainMaps(const v1::AttentionReport& report, int64_t prompt_tokens) {
  if (report.details().empty()) {
    return std::string(
        "<h2>Layers and heads</h2>\n<p>The server told nothing of them: all layers attended "
        "everything, or have a window of their own.</p>\n");
  }
  for (const v1::AttentionDetail& detail : report.details()) {
    if (absl::Status status = CheckDetail(detail); !status.ok()) return status;
  }
  std::string html = absl::StrCat(
      "<div class=\"pair\"><section><h2>Density</h2>\n<p>Share of the causal pairs of query and "
      "key that each layer and head "
      "attended, of what was computed. Point at a square for its number.</p>\n",
      Heat(report,
           [](const v1::AttentionDetail& detail) {
             return std::optional<double>(std::clamp(detail.density(), 0.0, 1.0));
           }),
      "</section>\n");
  const bool sampled =
      std::any_of(report.details().begin(), report.details().end(),
                  [](const v1::AttentionDetail& detail) { return detail.has_sampled_coverage(); });
  if (sampled) {
    absl::StrAppend(
        &html,
        "<section><h2>Coverage</h2>\n<p>Share of the softmax mass of sampled rows that lay "
        "inside the chosen blocks.</p>\n",
        Heat(report,
             [](const v1::AttentionDetail& detail) {
               return detail.has_sampled_coverage()
                          ? std::optional(std::clamp(detail.sampled_coverage(), 0.0, 1.0))
                          : std::nullopt;
             }),
        "</section>\n");
  }
  const auto maps = Maps(report, prompt_tokens);
  if (!maps.ok()) return maps.status();
  return absl::StrCat(html, "</div>\n", *maps);
}

}  // namespace annulus::client

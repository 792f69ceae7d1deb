#include "client/draw/explain_page.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/draw/attention_picture.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus {
namespace {

constexpr char kStyle[] = R"(
:root{--ink:#172033;--faint:#647085;--line:#dde3ec;--good:#0a6b3d;--bad:#a32018}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);margin:0;background:#f6f8fb}
main{max-width:1080px;margin:0 auto;padding:32px 24px}
h1{font-size:24px;margin:0 0 4px}h2{font-size:17px;margin:36px 0 4px}
p{margin:4px 0 12px;color:var(--faint);max-width:75ch}
code,.number,pre{font-family:ui-monospace,Menlo,"DejaVu Sans Mono",monospace}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:12px;margin:20px 0}
.card{background:#fff;border:1px solid var(--line);border-radius:8px;padding:12px 16px}
.card b{display:block;font-weight:500;font-size:13px;color:var(--faint)}
.card .number{font-size:23px;display:block;margin:2px 0}
.card small{color:var(--faint);display:block}.good{color:var(--good)}.bad{color:var(--bad)}
pre{background:#fff;border:1px solid var(--line);border-radius:8px;padding:12px 16px;
white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0;font-size:13px}
table{border-collapse:collapse;background:#fff;border:1px solid var(--line)}
th,td{padding:4px 12px;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}th{font-weight:500;color:var(--faint)}
.maps{display:flex;flex-wrap:wrap;gap:16px;margin-top:12px}figure{margin:0}
figure img{width:160px;height:160px;image-rendering:pixelated;border:1px solid var(--line);
background:#fff;display:block}
figcaption{font-size:12px;color:var(--faint);margin-top:4px}.heat{overflow-x:auto}
.heat svg{background:#fff;border:1px solid var(--line);border-radius:8px}
)";

std::string Share(double share) { return absl::StrFormat("%.3g", share); }

std::string Card(const std::string& name, const std::string& value, const std::string& note,
                 const std::string& style = "") {
  return absl::StrCat("<div class=\"card\"><b>", EscapeMarkup(name), "</b><span class=\"number ",
                      style, "\">", EscapeMarkup(value), "</span><small>", EscapeMarkup(note),
                      "</small></div>\n");
}

std::string CoverageCards(const v1::AttentionReport& report) {
  std::string cards;
  if (report.has_sampled_coverage()) {
    const v1::SampledCoverage& sampled = report.sampled_coverage();
    absl::StrAppend(&cards,
                    Card("sampled coverage", Share(sampled.mean()),
                         absl::StrCat("mean over ", FormatCount(sampled.rows()), " rows")),
                    Card("lowest coverage", Share(sampled.minimum()),
                         absl::StrCat("of a layer in a step; first percentile of heads ",
                                      Share(sampled.first_percentile()))));
  }
  if (report.has_estimated_coverage()) {
    absl::StrAppend(&cards, Card("estimated coverage", Share(report.estimated_coverage()),
                                 "what the estimator believed"));
  }
  if (report.has_inherited_coverage()) {
    absl::StrAppend(&cards, Card("inherited coverage", Share(report.inherited_coverage()),
                                 "of keys and values that were reused"));
  }
  if (report.layer_steps() > 0) {
    const bool bound = HasContract(report);
    absl::StrAppend(&cards,
                    Card("contract",
                         !bound                  ? "none"
                         : report.contract_met() ? "met"
                                                 : "not met",
                         absl::StrCat(FormatCount(report.layers_raised()), " raised and ",
                                      FormatCount(report.layers_dense()), " dense of ",
                                      FormatCount(report.layer_steps()), " layers and steps"),
                         !bound                  ? ""
                         : report.contract_met() ? "good"
                                                 : "bad"));
  }
  return cards;
}

std::string TimeCards(const ExplainedRun& run) {
  const v1::AttentionReport& report = run.answer.completion.attention();
  std::string cards;
  if (report.attend_wall_seconds() > 0) {
    const double estimate = report.estimate_wall_seconds();
    absl::StrAppend(&cards,
                    Card("attention", FormatDuration(report.attend_wall_seconds() + estimate),
                         absl::StrCat("of the slowest rank; ", FormatDuration(estimate),
                                      " of it to estimate and choose")));
  }
  const std::optional<SavedTime> saved = SavedSeconds(run);
  if (!saved.has_value()) return cards;
  const std::string dense = FormatDuration(saved->dense);
  return absl::StrCat(
      cards, Card(saved->seconds < 0 ? "time lost" : "time saved",
                  FormatDuration(std::abs(saved->seconds)),
                  saved->measured ? absl::StrCat("the dense run took ", dense, " in all")
                                  : absl::StrCat("about; dense attention would take ", dense)));
}

// Layers down, heads across, one value of each as a colour.
std::string Heat(const v1::AttentionReport& report,
                 double (*value_of)(const v1::AttentionDetail&)) {
  constexpr int kCell = 22;
  constexpr int kLeft = 74;
  constexpr int kTop = 26;
  int layers = 0;
  int heads = 0;
  for (const v1::AttentionDetail& detail : report.details()) {
    layers = std::max(layers, detail.layer() + 1);
    heads = std::max(heads, detail.kv_head() + 1);
  }
  std::string svg = absl::StrFormat(
      "<div class=\"heat\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
      "font-size=\"11\" fill=\"#647085\">\n<text x=\"%d\" y=\"17\">heads 0 to %d</text>\n",
      kLeft + std::max(heads * kCell, 110) + 12, kTop + layers * kCell + 12, kLeft, heads - 1);
  int labelled = -1;
  for (const v1::AttentionDetail& detail : report.details()) {
    const double value = std::clamp(value_of(detail), 0.0, 1.0);
    const int y = kTop + detail.layer() * kCell;
    if (detail.layer() != labelled) {
      labelled = detail.layer();
      absl::StrAppendFormat(&svg, "<text x=\"12\" y=\"%d\">layer %d</text>\n", y + 15, labelled);
    }
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\">"
                          "<title>layer %d, head %d: %s</title></rect>\n",
                          kLeft + detail.kv_head() * kCell, y, kCell - 2, kCell - 2,
                          ColorText(CellColor(static_cast<uint8_t>(std::lround(value * 255)))),
                          detail.layer(), detail.kv_head(), Share(value));
  }
  return absl::StrCat(svg, "</svg></div>\n");
}

absl::Status CheckPlace(const v1::AttentionDetail& detail) {
  constexpr int kMost = 1 << 16;
  for (const int number : {detail.layer(), detail.kv_head()}) {
    if (number >= 0 && number < kMost) continue;
    return absl::InternalError(absl::StrCat("the server tells of layer ", detail.layer(), ", head ",
                                            detail.kv_head(), ", and that cannot be"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Map(const v1::AttentionDetail& detail) {
  const int side = static_cast<int>(std::lround(std::sqrt(detail.map().size())));
  if (side == 0 || detail.map().size() != static_cast<size_t>(side) * side) {
    return absl::InternalError(absl::StrCat("the server sent a map of ", detail.map().size(),
                                            " cells, which is no square"));
  }
  const auto png = EncodePng(DrawCells(detail.map(), side));
  if (!png.ok()) return png.status();
  std::string caption = absl::StrFormat("layer %d, head %d<br>density %s", detail.layer(),
                                        detail.kv_head(), Share(detail.density()));
  if (detail.has_sampled_coverage()) {
    absl::StrAppend(&caption, ", coverage ", Share(detail.sampled_coverage()));
  }
  return absl::StrCat("<figure><img alt=\"blocks of layer ", detail.layer(), ", head ",
                      detail.kv_head(), "\" src=\"data:image/png;base64,", absl::Base64Escape(*png),
                      "\"><figcaption>", caption, "</figcaption></figure>\n");
}

absl::StatusOr<std::string> Details(const v1::AttentionReport& report) {
  if (report.details().empty()) {
    return std::string(
        "<h2>Layers and heads</h2>\n<p>The server told nothing of them: all layers attended "
        "everything, or have a window of their own.</p>\n");
  }
  for (const v1::AttentionDetail& detail : report.details()) {
    if (absl::Status status = CheckPlace(detail); !status.ok()) return status;
  }
  std::string html = absl::StrCat(
      "<h2>Density</h2>\n<p>Share of the causal pairs of query and key that each layer and head "
      "attended; darker is more. Point at a square for its number.</p>\n",
      Heat(report, [](const v1::AttentionDetail& detail) { return detail.density(); }));
  const bool sampled =
      std::any_of(report.details().begin(), report.details().end(),
                  [](const v1::AttentionDetail& detail) { return detail.has_sampled_coverage(); });
  if (sampled) {
    absl::StrAppend(
        &html,
        "<h2>Coverage</h2>\n<p>Share of the softmax mass of sampled rows that lay inside the "
        "chosen blocks. Heads of which no row was sampled are pale.</p>\n",
        Heat(report, [](const v1::AttentionDetail& detail) { return detail.sampled_coverage(); }));
  }
  absl::StrAppend(
      &html,
      "<h2>Chosen blocks</h2>\n<p>Queries go down and keys across; the prompt begins at "
      "the top left. Dark cells were attended, pale ones left out.</p>\n"
      "<div class=\"maps\">\n");
  for (const v1::AttentionDetail& detail : report.details()) {
    const auto map = Map(detail);
    if (!map.ok()) return map.status();
    html += *map;
  }
  return absl::StrCat(html, "</div>\n");
}

std::string TimesRow(const char* name, const v1::Completion& completion) {
  const v1::Timings& timings = completion.timings();
  return absl::StrCat(
      "<tr><td>", name, "</td><td>", FormatCount(completion.usage().cached_tokens()), "</td><td>",
      FormatDuration(timings.prefill()), "</td><td>", FormatDuration(timings.time_to_first_token()),
      "</td><td>", FormatDuration(timings.decode()), "</td><td>", FormatDuration(timings.total()),
      "</td></tr>\n");
}

std::string Times(const ExplainedRun& run) {
  std::string html = absl::StrCat(
      "<h2>Time</h2>\n<table><tr><th></th><th>cached tokens</th><th>prefill</th><th>first token"
      "</th><th>decode</th><th>total</th></tr>\n",
      TimesRow("this request", run.answer.completion));
  if (run.dense.has_value()) {
    absl::StrAppend(&html, TimesRow("the same, dense", run.dense->completion));
  }
  absl::StrAppend(&html, "</table>\n");
  if (run.dense.has_value()) {
    absl::StrAppend(&html, "<p>",
                    run.dense->text == run.answer.text ? "Dense attention gives the same answer."
                                                       : "Dense attention gives another answer:",
                    "</p>\n");
    if (run.dense->text != run.answer.text) {
      absl::StrAppend(&html, "<pre>", EscapeMarkup(run.dense->text), "</pre>\n");
    }
  }
  return html;
}

}  // namespace

bool HasContract(const v1::AttentionReport& report) {
  return absl::StrContains(report.policy(), "coverage=");
}

std::optional<SavedTime> SavedSeconds(const ExplainedRun& run) {
  const v1::Completion& answer = run.answer.completion;
  if (run.dense.has_value()) {
    const v1::Completion& dense = run.dense->completion;
    if (dense.usage().cached_tokens() != answer.usage().cached_tokens() || !answer.has_timings() ||
        !dense.has_timings()) {
      return std::nullopt;
    }
    const auto took = [](const v1::Timings& timings) { return timings.total() - timings.queue(); };
    return SavedTime{took(dense.timings()) - took(answer.timings()), took(dense.timings()), true};
  }
  const v1::AttentionReport& report = answer.attention();
  const double attend = report.attend_wall_seconds();
  if (!(attend > 0) || !(report.density() > 0)) return std::nullopt;
  const double dense = attend / report.density();
  return SavedTime{dense - attend - report.estimate_wall_seconds(), dense, false};
}

absl::StatusOr<std::string> ExplainPage(const ExplainedRun& run) {
  const v1::AttentionReport& report = run.answer.completion.attention();
  const auto details = Details(report);
  if (!details.ok()) return details.status();
  const v1::Usage& usage = run.answer.completion.usage();
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Attention of one request"
      "</title><style>",
      kStyle, "</style></head><body><main>\n<h1>What attention did</h1>\n<p>",
      "One request under the policy <code>", EscapeMarkup(report.policy()), "</code></p>\n",
      "<div class=\"cards\">\n",
      Card("density", Share(report.density()), "of all causal pairs were attended"),
      CoverageCards(report), TimeCards(run),
      Card("prompt", FormatCount(usage.prompt_tokens()),
           absl::StrCat("tokens, ", FormatCount(usage.cached_tokens()), " of them reused; ring of ",
                        report.ring_degree())),
      "</div>\n<h2>Prompt and answer</h2>\n<pre>", EscapeMarkup(run.prompt), "</pre>\n<pre><b>",
      EscapeMarkup(run.answer.text), "</b></pre>\n", Times(run), *details,
      "</main></body></html>\n");
}

}  // namespace annulus

#include "client/draw/explain_page.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/draw/explain_maps.h"
#include "client/draw/svg_canvas.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

constexpr char kStyle[] = R"(
:root{--ink:#172033;--faint:#647085;--line:#dde3ec;--good:#0a6b3d;--bad:#a32018}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);margin:0;background:#f6f8fb}
main{max-width:1080px;margin:0 auto;padding:32px 24px}
h1{font-size:24px;margin:0 0 12px}h2{font-size:17px;margin:36px 0 4px}
p{margin:4px 0 12px;color:var(--faint);max-width:75ch}
code,.number,pre{font-family:ui-monospace,Menlo,"DejaVu Sans Mono",monospace}
code{overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(210px,1fr));gap:12px;margin:20px 0}
.card{background:#fff;border:1px solid var(--line);border-radius:8px;padding:12px 16px}
.card b{display:block;font-weight:500;font-size:13px;color:var(--faint)}
.card .number{font-size:23px;display:block;margin:2px 0}
.card small{color:var(--faint);display:block}.good{color:var(--good)}.bad{color:var(--bad)}
pre{background:#fff;border:1px solid var(--line);border-radius:8px;padding:12px 16px;
white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0;font-size:13px}
.scroll{overflow-x:auto}.scroll th,.scroll td{white-space:nowrap}
.pair{display:flex;flex-wrap:wrap;gap:0 48px}.pair section{min-width:0;max-width:100%}
.pair p{max-width:46ch}
table{border-collapse:collapse;background:#fff;border:1px solid var(--line)}
th,td{padding:4px 12px;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child,.facts td{text-align:left}th{font-weight:500;color:var(--faint)}
.facts td{overflow-wrap:anywhere}.facts th{vertical-align:top;white-space:nowrap}
.legend{font-size:13px}
.legend i{display:inline-block;width:16px;height:12px;vertical-align:-1px;border:1px solid var(--line)}
.legend i+i{border-left:0}
.heat{background:#fff;border:1px solid var(--line);border-radius:8px;display:block}
.maps{display:flex;flex-wrap:wrap;gap:16px 24px;margin-top:12px}figure{margin:0}
.map{display:block;max-width:100%;height:auto;font-size:10px;fill:#647085}
.map path{stroke:#647085}.map image{image-rendering:pixelated}
figcaption{font-size:12px;color:var(--faint);margin-top:4px}
@media(max-width:520px){main{padding:16px 12px}h1{font-size:20px}
.cards{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}.card{padding:8px 10px}
.card .number{font-size:18px;overflow-wrap:anywhere}th,td{padding:4px 8px}
.maps{gap:12px;justify-content:center}}
@media print{@page{margin:14mm}body{background:#fff;font-size:12px}main{max-width:none;padding:0 1px}
h1{font-size:19px}h2{font-size:15px;margin:20px 0 2px}
h2,h2+p,.legend{break-after:avoid}figure,.card,tr,.pair section{break-inside:avoid}
.pair{gap:0 24px}.pair p{max-width:38ch}
.scroll{overflow:visible}.heat{max-width:100%;height:auto}
.cards{grid-template-columns:repeat(4,1fr)}.card .number{font-size:17px}}
)";

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
                    Card("sampled coverage", FormatShare(sampled.mean()),
                         absl::StrCat("mean over ", FormatCount(sampled.rows()), " rows")),
                    Card("lowest coverage", FormatShare(sampled.minimum()),
                         absl::StrCat("of a layer in a step; first percentile of heads ",
                                      FormatShare(sampled.first_percentile()))));
  }
  if (report.has_estimated_coverage()) {
    absl::StrAppend(&cards, Card("estimated coverage", FormatShare(report.estimated_coverage()),
                                 "what the estimator believed"));
  }
  if (report.has_inherited_coverage()) {
    absl::StrAppend(&cards, Card("inherited coverage", FormatShare(report.inherited_coverage()),
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
      "<h2>Time</h2>\n<div class=\"scroll\"><table><tr><th></th><th>cached "
      "tokens</th><th>prefill</th><th>first token"
      "</th><th>decode</th><th>total</th></tr>\n",
      TimesRow("this request", run.answer.completion));
  if (run.dense.has_value()) {
    absl::StrAppend(&html, TimesRow("the same, dense", run.dense->completion));
  }
  absl::StrAppend(&html, "</table></div>\n");
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

std::string Fact(const char* name, const std::string& value) {
  if (value.empty()) return "";
  return absl::StrCat("<tr><th>", name, "</th><td>", value, "</td></tr>\n");
}

// The subject of the page, so that a saved page can be told from others later.
std::string Facts(const ExplainedRun& run) {
  constexpr size_t kMostTitles = 20;
  const ExplainedRun::Subject& subject = run.subject;
  std::string documents;
  for (size_t i = 0; i < std::min(kMostTitles, subject.documents.size()); ++i) {
    absl::StrAppend(&documents, i == 0 ? "" : "<br>", EscapeMarkup(subject.documents[i]));
  }
  if (subject.documents.size() > kMostTitles) {
    absl::StrAppend(&documents, "<br>and ", subject.documents.size() - kMostTitles, " more");
  }
  const v1::Completion& completion = run.answer.completion;
  return absl::StrCat(
      "<table class=\"facts\">\n", Fact("model", EscapeMarkup(subject.model)),
      Fact("documents", documents),
      Fact("policy",
           absl::StrCat("<code>", EscapeMarkup(completion.attention().policy()), "</code>")),
      Fact("request", EscapeMarkup(completion.request_id())),
      Fact("date", EscapeMarkup(subject.date)), Fact("server", EscapeMarkup(subject.version)),
      "</table>\n");
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
  const v1::Usage& usage = run.answer.completion.usage();
  const auto maps = ExplainMaps(report, usage.prompt_tokens());
  if (!maps.ok()) return maps.status();
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>Attention of one request</title><style>",
      kStyle, "</style></head><body><main>\n<h1>What attention did for one request</h1>\n",
      Facts(run), "<div class=\"cards\">\n",
      Card("density", FormatShare(report.density()), "of all causal pairs were attended"),
      CoverageCards(report), TimeCards(run),
      Card("prompt", FormatCount(usage.prompt_tokens()),
           absl::StrCat("tokens, ", FormatCount(usage.cached_tokens()), " of them reused; ring of ",
                        report.ring_degree())),
      "</div>\n<h2>Prompt and answer</h2>\n<pre>", EscapeMarkup(run.prompt), "</pre>\n<pre><b>",
      EscapeMarkup(run.answer.text), "</b></pre>\n", Times(run), *maps, "</main></body></html>\n");
}

}  // namespace annulus::client

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/commands.h"
#include "bench/report/line_chart.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

using Json = nlohmann::json;

struct ChartOptions {
  std::string rows;
  std::string output;
};

bool IsAttention(const Json& row) {
  return row.value("phase", "") == "prefill" && row.contains("ratio_to_dense");
}

bool IsQuality(const Json& row) { return row.contains("divergence"); }

// bench/serve.sh and bench/lengths.sh add to their rows which part they belong to.
bool IsServing(const Json& row) { return row.contains("part"); }

// Of bench/peers.sh.
bool IsPeer(const Json& row) { return row.contains("program") && row.contains("length"); }

// The rows that charts are drawn of, one for each line.
absl::StatusOr<std::vector<Json>> ReadRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<Json> rows;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ":", number, ": not a row that --json wrote"));
    }
    if (IsAttention(row) || IsQuality(row) || IsServing(row) || IsPeer(row)) {
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": it has no row of annulus-bench attention or quality with --json, nor of "
                     "bench/serve.sh, bench/lengths.sh or bench/peers.sh"));
  }
  return rows;
}

// The name of a row's line; nullopt: it is not in the chart.
using NameOf = std::function<std::optional<std::string>(const Json&)>;

// "window" of "window:block=64,..".
std::optional<std::string> PolicyOf(const Json& row) {
  if (!IsAttention(row)) return std::nullopt;
  const std::string text = row.value("policy", "");
  return text.substr(0, text.find(':'));
}

// "weights int8" or "keys and values fp8_e4m3", with the inputs' form if they were rounded too.
std::optional<std::string> RoundingOf(const Json& row) {
  if (!IsQuality(row) || row.value("attention", "") != "dense") return std::nullopt;
  const std::string weights = row.value("weights", "");
  std::string name = weights == row.value("reference_weights", "")
                         ? absl::StrCat("keys and values ", row.value("kv", ""))
                         : absl::StrCat("weights ", weights);
  const std::string inputs = row.value("activations", "float");
  if (inputs != "float") absl::StrAppend(&name, ", inputs ", inputs);
  return name;
}

// "adaptive pooled 0.95" of "adaptive:estimator=pooled,coverage=0.95".
std::optional<std::string> SparseOf(const Json& row) {
  const std::string text = row.value("attention", "");
  if (!IsQuality(row) || text == "dense") return std::nullopt;
  std::string name;
  for (const absl::string_view part : absl::StrSplit(text, absl::ByAnyChar(":,"))) {
    const size_t value = part.find('=');
    absl::StrAppend(&name, name.empty() ? "" : " ",
                    value == part.npos ? part : part.substr(value + 1));
  }
  return name;
}

std::string RanksOf(const Json& row) {
  const int ranks = row.value("ranks", 0);
  return absl::StrCat(ranks, ranks == 1 ? " rank" : " ranks");
}

// "1 rank, depth 512", or "1 rank, shared 32704" if the prompts have so many first tokens in
// common.
std::optional<std::string> BatchOf(const Json& row) {
  const std::string phase = row.value("phase", "");
  const bool alone = phase == "decode" && row.value("part", "") == "decode";
  if (!IsServing(row) || !(alone || phase == "decode, batched")) return std::nullopt;
  const int64_t shared = row.value("shared", int64_t{0});
  return shared > 0 ? absl::StrCat(RanksOf(row), ", shared ", shared)
                    : absl::StrCat(RanksOf(row), ", depth ", row.value("depth", int64_t{0}));
}

// "short, other, 1 rank": the half of the prompts, and which of the two daemons served them.
std::optional<std::string> HalfOf(const Json& row) {
  if (row.value("part", "") != "mixed" || !row.contains("daemon")) return std::nullopt;
  const std::string latency = row.value("latency", "");
  const bool shorter = latency == "time_to_first_token_shorter";
  if (!shorter && latency != "time_to_first_token_longer") return std::nullopt;
  return absl::StrCat(shorter ? "short, " : "long, ", row.value("daemon", ""), ", ", RanksOf(row));
}

bool IsOfLengths(const Json& row, absl::string_view phase) {
  return row.value("phase", "") == phase && row.value("part", "") == "lengths";
}

// The time of a prompt or of a token over the length of its context, beside the least time in which
// the machine could do it: of the rows of bench/lengths.sh, and the peers'. The least time is at
// the highest peak of these rows: a machine that others use, too, gives less at times.
LineChart LengthsOf(const std::vector<Json>& rows, absl::string_view phase, std::string title,
                    std::string x_label) {
  LineChart chart{std::move(title), std::move(x_label), "seconds", {}};
  std::vector<std::string> names;
  std::map<std::string, std::map<double, double>> lines;
  const auto add = [&](const std::string& name, double length, double seconds) {
    if (!(length > 0) || !(seconds > 0)) return;
    if (lines.find(name) == lines.end()) names.push_back(name);
    lines[name][length] = seconds;
  };
  double highest_peak = 0;
  for (const Json& row : rows) {
    if (IsOfLengths(row, phase)) {
      highest_peak = std::max(highest_peak, row.value("peak_rate", 0.0));
    }
  }
  for (const Json& row : rows) {
    const bool peer = IsPeer(row) && row.value("phase", "") == phase;
    if (!peer && !IsOfLengths(row, phase)) continue;
    const bool prompt = phase == "prefill";
    const double length = row.value(peer ? "length" : prompt ? "tokens" : "depth", 0.0);
    const double seconds = (prompt ? length : 1) / row.value("tokens_per_second", 0.0);
    add(row.value("program", "Annulus"), length, seconds);
    if (peer || !(highest_peak > 0)) continue;
    const double at_highest = row.value("peak_rate", 0.0) / highest_peak;
    add("least time", length, seconds * row.value("peak_fraction", 0.0) * at_highest);
  }
  for (const std::string& name : names) {
    chart.lines.push_back({name, {lines[name].begin(), lines[name].end()}});
  }
  return chart;
}

// The tails of the rows that have a name: how long one request in so many takes at least. Of
// several rows of one name, which are traces, the median counts.
LineChart TailsOf(const std::vector<Json>& rows, const NameOf& name_of, std::string title) {
  LineChart chart{std::move(title), "one request in", "seconds, or more", {}};
  std::vector<std::string> names;
  std::map<std::string, std::map<double, std::vector<double>>> lines;
  for (const Json& row : rows) {
    const std::optional<std::string> name = name_of(row);
    if (!name.has_value()) continue;
    if (lines.find(*name) == lines.end()) names.push_back(*name);
    for (const auto& [key, requests] :
         {std::pair{"p50", 2.0}, std::pair{"p90", 10.0}, std::pair{"p99", 100.0}}) {
      const auto seconds = row.find(key);
      if (seconds == row.end() || !seconds->is_number() || seconds->get<double>() <= 0) continue;
      lines[*name][requests].push_back(seconds->get<double>());
    }
  }
  for (const std::string& name : names) {
    LineChart::Line line{name, {}};
    for (const auto& [x, values] : lines[name]) line.points.emplace_back(x, Median(values));
    chart.lines.push_back(std::move(line));
  }
  return chart;
}

// One line for each name in the order of the rows; of rows with one `x_key` the last one counts.
LineChart ChartOf(const std::vector<Json>& rows, const NameOf& name_of, const char* x_key,
                  const char* value, std::string title, std::string y_label) {
  LineChart chart{std::move(title), x_key, std::move(y_label), {}};
  std::vector<std::string> names;
  std::map<std::string, std::map<double, double>> lines;
  for (const Json& row : rows) {
    const std::optional<std::string> name = name_of(row);
    const auto x = row.find(x_key);
    const auto y = row.find(value);
    if (!name.has_value()) continue;
    if (x == row.end() || y == row.end() || !x->is_number() || !y->is_number()) continue;
    if (x->get<double>() <= 0 || y->get<double>() <= 0) continue;
    if (lines.find(*name) == lines.end()) names.push_back(*name);
    lines[*name][x->get<double>()] = y->get<double>();
  }
  for (const std::string& name : names) {
    chart.lines.push_back({name, {lines[name].begin(), lines[name].end()}});
  }
  return chart;
}

absl::Status RunChart(const ChartOptions& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<Json> rows, ReadRows(options.rows));
  const std::string svg = DrawLineCharts(
      {ChartOf(rows, PolicyOf, "tokens", "seconds", "Time of one layer's attention", "seconds"),
       ChartOf(rows, PolicyOf, "tokens", "ratio_to_dense",
               "Beside dense attention of the same kernel", "ratio"),
       ChartOf(rows, RoundingOf, "tokens", "divergence", "Divergence by what is rounded", "nats"),
       ChartOf(rows, SparseOf, "tokens", "divergence", "Divergence by attention policy", "nats"),
       TailsOf(rows, HalfOf, "Mixed trace: time to the first token"),
       ChartOf(rows, BatchOf, "streams", "tokens_per_second", "Tokens a second, decoded in batches",
               "tokens a second"),
       LengthsOf(rows, "prefill", "Reading a prompt", "tokens of the prompt"),
       LengthsOf(rows, "decode", "One token of an answer", "tokens before it")});
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << svg;
  if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", options.output));
  return absl::OkStatus();
}

}  // namespace

void AddChartCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ChartOptions>();
  CLI::App* command = app.add_subcommand(
      "chart",
      "Draw rows as charts: of 'attention' time and ratio to dense, of 'quality' divergence, of "
      "bench/serve.sh latencies and batches, of bench/lengths.sh the cost of each length");
  command->footer(
      "Examples:\n"
      "  annulus-bench attention --seq 1024,4096 --policy window --json-file rows.jsonl\n"
      "  annulus-bench chart rows.jsonl -o rows.svg\n"
      "  annulus-bench chart bench/results/quality.jsonl -o quality.svg");
  command->add_option("ROWS", options->rows, "File of rows, as written by --json-file")->required();
  command->add_option("-o,--output", options->output, "SVG file to write")->required();
  command->callback(
      [options, &context] { context.action = [options] { return RunChart(*options); }; });
}

}  // namespace annulus::bench

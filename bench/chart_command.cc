#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/report/line_chart.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

struct ChartOptions {
  std::string rows;
  std::string output;
};

// The rows of attention alone, one for each line.
absl::StatusOr<std::vector<Json>> ReadRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", path));
  std::vector<Json> rows;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    Json row = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!row.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": no row of --json"));
    }
    if (row.value("phase", "") == "prefill" && row.contains("ratio_to_dense")) {
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no row of annulus-bench attention"));
  }
  return rows;
}

// "window" of "window:block=64,..".
std::string PolicyOf(const Json& row) {
  const std::string text = row.value("policy", "");
  return text.substr(0, text.find(':'));
}

// One line for each policy in the order of the rows; of rows of one length the last one counts.
LineChart ChartOf(const std::vector<Json>& rows, const char* value, std::string title,
                  std::string y_label) {
  LineChart chart{std::move(title), "tokens", std::move(y_label), {}};
  std::vector<std::string> names;
  std::map<std::string, std::map<double, double>> lines;
  for (const Json& row : rows) {
    const std::string name = PolicyOf(row);
    const auto x = row.find("tokens");
    const auto y = row.find(value);
    if (x == row.end() || y == row.end() || !x->is_number() || !y->is_number()) continue;
    if (x->get<double>() <= 0 || y->get<double>() <= 0) continue;
    if (lines.find(name) == lines.end()) names.push_back(name);
    lines[name][x->get<double>()] = y->get<double>();
  }
  for (const std::string& name : names) {
    chart.lines.push_back({name, {lines[name].begin(), lines[name].end()}});
  }
  return chart;
}

absl::Status RunChart(const ChartOptions& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<Json> rows, ReadRows(options.rows));
  const std::string svg = DrawLineCharts(
      {ChartOf(rows, "seconds", "Time of one layer's attention", "seconds"),
       ChartOf(rows, "ratio_to_dense", "Beside dense attention of the same kernel", "ratio")});
  std::ofstream file(options.output, std::ios::binary | std::ios::trunc);
  file << svg;
  if (!file.flush()) return absl::UnavailableError(absl::StrCat("cannot write ", options.output));
  return absl::OkStatus();
}

}  // namespace

void AddChartCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ChartOptions>();
  CLI::App* command = app.add_subcommand(
      "chart", "Draw rows of 'attention' as a chart: time and ratio to dense over length");
  command->footer(
      "Examples:\n"
      "  annulus-bench attention --seq 1024,4096 --policy window --json-file rows.jsonl\n"
      "  annulus-bench chart rows.jsonl -o rows.svg");
  command->add_option("ROWS", options->rows, "File of rows, as written by --json-file")->required();
  command->add_option("-o,--output", options->output, "SVG file to write")->required();
  command->callback(
      [options, &context] { context.action = [options] { return RunChart(*options); }; });
}

}  // namespace annulus

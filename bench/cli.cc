#include "bench/cli.h"

#include <algorithm>
#include <fstream>

#include "bench/commands.h"
#include "bench/flags.h"
#include "client/cli/line/misuse.h"

namespace annulus::bench {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitMisuse = 2;

constexpr char kExamples[] =
    "Examples:\n"
    "  annulus-bench peak\n"
    "  annulus-bench model --random bench/configs/llama-3.2-1b.json --prompt-tokens 512,2048\n"
    "  annulus-bench attention --seq 8192 --policy window --density 0.1\n"
    "  annulus-bench serve --server 127.0.0.1:50051 --rate 2 --duration 30\n"
    "'annulus-bench COMMAND --help' describes a command; bench/README.md explains the columns.";

}  // namespace

int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             size_t read_bytes) {
  CLI::App app("Measures Annulus against the limits of the machine it runs on.", "annulus-bench");
  app.require_subcommand(1);
  app.footer(kExamples);
  std::ofstream json_copy;
  BenchContext context{.rows = {.out = out}, .err = err, .read_bytes = read_bytes};
  AddPeakCommand(app, context);
  AddModelCommand(app, context);
  AddAttentionCommand(app, context);
  AddServeCommand(app, context);
  AddGatesCommand(app, context);
  AddHeadsCommand(app, context);
  AddQualityCommand(app, context);
  for (CLI::App* command : app.get_subcommands({})) {
    AddOutputFlags(*command, context.rows, json_copy);
  }
  AddChartCommand(app, context);  // prints no rows
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, out, err);
    err << "annulus-bench: " << client::DescribeMisuse(app, error) << "\n";
    return kExitMisuse;
  }
  const absl::Status status = context.action();
  if (status.ok()) return 0;
  err << "annulus-bench: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kExitMisuse : kExitFailure;
}

}  // namespace annulus::bench

#include "bench/cli.h"

#include <algorithm>

#include "bench/commands.h"

namespace annulus {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitMisuse = 2;

}  // namespace

int RunBench(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err,
             size_t read_bytes) {
  CLI::App app("Measures Annulus against the limits of the machine it runs on.", "annulus-bench");
  app.require_subcommand(1);
  BenchContext context{out, err, read_bytes};
  AddPeakCommand(app, context);
  AddModelCommand(app, context);
  AddAttentionCommand(app, context);
  AddServeCommand(app, context);
  for (CLI::App* command : app.get_subcommands({})) {
    command->add_flag("--json", context.json, "Print one JSON object per row");
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return app.exit(error, out, err) == 0 ? 0 : kExitMisuse;
  }
  const absl::Status status = context.action();
  if (status.ok()) return 0;
  err << "annulus-bench: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kExitMisuse : kExitFailure;
}

}  // namespace annulus

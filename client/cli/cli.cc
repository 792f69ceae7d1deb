#include "client/cli/cli.h"

#include <CLI/CLI.hpp>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/help.h"
#include "client/cli/misuse.h"
#include "client/cli/options.h"
#include "client/failure.h"

namespace annulus {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  annulus ask report.txt 'What does it conclude?'\n"
    "  annulus complete 'Once upon a time' --max-tokens 64 --temperature 0\n"
    "  annulus status --server gpu7:50051\n"
    "'annulus COMMAND --help' says more.\n"
    "Exit code: 0; 64 + gRPC code for a failed call; 2 for misuse; 3 if some files could not be "
    "read; 130 when interrupted.";

void WarnOfExposedToken(Session& session, const CommonOptions& options) {
  const Connection& connection = session.connection();
  if (options.connection.token.empty() || connection.encrypted()) return;
  if (IsLocalServer(connection.server())) return;
  session.Warn("the token is sent without encryption; use --tls");
}

}  // namespace

int RunCli(const std::vector<std::string>& arguments, Console& console,
           const Environment& environment, Cancellation& cancellation) {
  CommonOptions common;
  ReadEnvironment(environment, common);
  Action action;
  CLI::App app("Command-line client of annulusd, which answers from long documents.", "annulus");
  app.set_version_flag("--version", "annulus " ANNULUS_VERSION);
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(kExamples);
  AddCommonOptions(app, common);
  AddGenerateCommands(app, common, action, arguments.size());
  AddDocumentCommands(app, common, action);
  AddAttentionCommands(app, common, action);
  AddInfoCommands(app, common, action);
  AddTokenizeCommand(app, common, action);
  try {
    // CLI11 takes the last argument first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    // Help and version are reported as errors of code 0.
    if (error.get_exit_code() == 0) return app.exit(error, console.out, console.err);
    console.err << "annulus: " << DescribeMisuse(app, error) << std::endl;
    return kExitMisuse;
  }
  const auto connection = Connection::Open(common.connection, cancellation);
  if (!connection.ok()) {
    console.err << "annulus: " << connection.status().message() << std::endl;
    return kExitMisuse;
  }
  Session session(console, common, **connection, cancellation);
  WarnOfExposedToken(session, common);
  return action(session);
}

}  // namespace annulus

#include "client/cli/cli.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/line/help.h"
#include "client/cli/line/misuse.h"
#include "client/cli/line/options.h"
#include "client/cli/line/user_config.h"
#include "client/failure.h"

namespace annulus::client {
namespace {

constexpr char kExamples[] =
    "Examples:\n"
    "  annulus ask report.txt 'What does it conclude?'\n"
    "  annulus complete 'Once upon a time' --max-tokens 64 --temperature 0\n"
    "  annulus status --server gpu7:50051\n'annulus COMMAND --help' shows the options of a "
    "command.\n"
    "Exit codes: 0 success; 1 output cannot be written; 2 wrong usage; 3 some of several files\n"
    "or requests failed; 64 + gRPC code for a failed call; 130 interrupted.";

void WarnOfExposedToken(Session& session, const CommonOptions& options) {
  const Connection& connection = session.connection();
  if (options.connection.token.empty() || connection.encrypted()) return;
  if (IsLocalServer(connection.server())) return;
  session.Warn("the token is sent without encryption; use --tls");
}

const CLI::App* CommandNamed(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : CommandsOf(app)) {
    if (command->check_name(name)) return command;
  }
  return nullptr;
}

// Moves a "--" that stands before the names of commands behind them. It ends the flags wherever
// users put it, but CLI11 accepts it only after the command.
std::vector<std::string> WithDashesAfterCommands(const CLI::App& app,
                                                 std::vector<std::string> arguments) {
  const CLI::App* command = &app;
  auto at = arguments.begin();
  for (; at != arguments.end() && *at != "--"; ++at) {
    const CLI::App* deeper = CommandNamed(*command, *at);
    if (deeper != nullptr) command = deeper;
  }
  while (at != arguments.end() && at + 1 != arguments.end()) {
    command = CommandNamed(*command, *(at + 1));
    if (command == nullptr) break;
    std::iter_swap(at, at + 1);
    ++at;
  }
  return arguments;
}

// The parser with all commands, and the parsed command line.
struct CommandLine {
  CommandLine(const std::vector<std::string>& given, const Environment& environment)
      : app("Command-line client of annulusd, which serves language models over long documents.",
            "annulus") {
    ReadEnvironment(environment, common);
    app.set_version_flag("--version", "annulus " ANNULUS_VERSION);
    app.require_subcommand(1);
    app.formatter(std::make_shared<HelpFormatter>());
    app.footer(kExamples);
    AddCommonOptions(app, common);
    AddGenerateCommands(app, common, action, environment, given.size());
    AddPlanCommand(app, common, action, given.size());
    AddChatCommand(app, common, action, environment);
    AddBatchCommand(app, common, action);
    AddPresetCommands(app, common, action, environment);
    AddDocumentCommands(app, common, action);
    AddAttentionCommands(app, common, action);
    AddInfoCommands(app, common, action);
    AddTokenizeCommand(app, common, action);
    AddHelpCommands(app, common, action);
    arguments = WithDashesAfterCommands(app, given);
    try {
      // CLI11 expects the arguments in reverse order.
      app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
    } catch (const CLI::ParseError& failure) {
      error = failure;
      // Help and version are reported as errors of code 0.
      if (failure.get_exit_code() != 0) misuse = DescribeMisuse(app, failure);
    }
  }

  // Prints the requested help or the error, and returns the exit code. `where` names the source of
  // the error.
  int Complain(Console& console, absl::string_view where) const {
    if (error->get_exit_code() == 0) return app.exit(*error, console.out, console.err);
    console.err << "annulus: " << where << misuse << std::endl;
    return kExitMisuse;
  }

  CommonOptions common;
  Action action;
  CLI::App app;
  std::vector<std::string> arguments;
  std::optional<CLI::ParseError> error;
  std::string misuse;
};

}  // namespace

int RunCli(const std::vector<std::string>& arguments, Console& console,
           const Environment& environment, Cancellation& cancellation) {
  const CommandLine first(arguments, environment);
  if (first.error.has_value()) return first.Complain(console, "");
  // Parse the command line first, to know which settings of the user's file it leaves open.
  const std::string path = UserConfigPath(environment);
  absl::StatusOr<std::vector<std::string>> all = first.arguments;
  const auto settings = ReadUserConfig(path, first.common.profile);
  if (settings.ok()) all = WithSettings(path, *settings, first.app, environment, first.arguments);
  const absl::Status& read = settings.ok() ? all.status() : settings.status();
  if (!read.ok()) {
    console.err << "annulus: " << read.message() << std::endl;
    return kExitMisuse;
  }
  const CommandLine line(*all, environment);
  if (line.error.has_value()) return line.Complain(console, absl::StrCat(path, ": "));
  const auto connection = Connection::Open(line.common.connection, cancellation);
  if (!connection.ok()) {
    console.err << "annulus: " << connection.status().message() << std::endl;
    return kExitMisuse;
  }
  Session session(console, line.common, **connection, cancellation);
  WarnOfExposedToken(session, line.common);
  if (IsOutOfReach(path)) {
    session.Warn(absl::StrCat("defaults are not read: this user has no access to the folder of ",
                              path, "; set HOME or XDG_CONFIG_HOME to a folder of this user"));
  }
  return line.action(session);
}

}  // namespace annulus::client

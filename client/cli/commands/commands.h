#ifndef ANNULUS_CLIENT_CLI_COMMANDS_COMMANDS_H_
#define ANNULUS_CLIENT_CLI_COMMANDS_COMMANDS_H_

#include <CLI/CLI.hpp>

#include "client/cli/session.h"

namespace annulus::client {

// Each function adds one group of commands to `app`. When the command line names one of them,
// parsing stores in `action` how to run it. `common` and `action` must outlive `app`.

// complete, ask. `environment` is read at once. `argument_count` is the number of words on the
// command line.
void AddGenerateCommands(CLI::App& app, CommonOptions& common, Action& action,
                         const Environment& environment, size_t argument_count);
// plan
void AddPlanCommand(CLI::App& app, CommonOptions& common, Action& action, size_t argument_count);
// documents put, list, show, get, unpin, delete; ls, rm
void AddDocumentCommands(CLI::App& app, CommonOptions& common, Action& action);
// models, status
void AddInfoCommands(CLI::App& app, CommonOptions& common, Action& action);
// attention show, explain
void AddAttentionCommands(CLI::App& app, CommonOptions& common, Action& action);
// chat. `environment` is read at once.
void AddChatCommand(CLI::App& app, CommonOptions& common, Action& action,
                    const Environment& environment);
// batch
void AddBatchCommand(CLI::App& app, CommonOptions& common, Action& action);
// summarize, extract. `environment` must outlive `app`.
void AddPresetCommands(CLI::App& app, CommonOptions& common, Action& action,
                       const Environment& environment);
// help, version, completion
void AddHelpCommands(CLI::App& app, CommonOptions& common, Action& action);
// tokenize
void AddTokenizeCommand(CLI::App& app, CommonOptions& common, Action& action);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_COMMANDS_COMMANDS_H_

#ifndef ANNULUS_CLIENT_CLI_OPTIONS_H_
#define ANNULUS_CLIENT_CLI_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"

namespace annulus {

// Server, TLS, token and output options. `options` must outlive `command`.
void AddCommonOptions(CLI::App& command, CommonOptions& options);

// What the environment says where the command line does not: ANNULUS_SERVER, ANNULUS_TOKEN, TERM.
void ReadEnvironment(const Environment& environment, CommonOptions& options);

// The model and every field of SamplingParams as a flag of the same name with dashes. A flag that
// is not given leaves its field absent. `spec` must outlive `command`.
void AddGenerationOptions(CLI::App& command, v1::GenerationSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_OPTIONS_H_

#ifndef ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_
#define ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"

namespace annulus::client {

// Adds the server, TLS, token, profile and output options. `options` must outlive `command`.
void AddCommonOptions(CLI::App& command, CommonOptions& options);

// Sets the defaults from the environment: ANNULUS_SERVER, ANNULUS_TOKEN, ANNULUS_PROFILE and TERM.
// Call it before parsing, so that flags override them.
void ReadEnvironment(const Environment& environment, CommonOptions& options);

// Adds flags for the model, the attention policy, the form of the answer, the request (id,
// priority, digest, speculation) and every field of SamplingParams; the last have the field's name
// with dashes. Flags that are not given leave their fields unset. `spec` must outlive `command`.
void AddGenerationOptions(CLI::App& command, v1::GenerationSpec& spec);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_

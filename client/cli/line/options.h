#ifndef ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_
#define ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <limits>
#include <string>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"

namespace annulus::client {

// Adds the server, TLS, token, profile and output options. `options` must outlive `command`.
void AddCommonOptions(CLI::App& command, CommonOptions& options);

// The least value of a range that does not include 0, and the most of one without an end.
inline constexpr double kAboveZero = std::numeric_limits<double>::min();
inline constexpr double kAnyNumber = std::numeric_limits<double>::infinity();

// Checks that a number is in a range; `range` is the range in words, for the message. Leaves it to
// the option to refuse what is no number.
CLI::Validator Within(double least, double most, std::string range);

// Sets the defaults from the environment: ANNULUS_SERVER, ANNULUS_TOKEN, ANNULUS_PROFILE and TERM.
// Call it before parsing, so that flags override them.
void ReadEnvironment(const Environment& environment, CommonOptions& options);

// Adds flags for the model, the attention policy, the form of the answer, the request (id,
// priority, digest, speculation) and every field of SamplingParams; the last have the field's name
// with dashes. Flags that are not given leave their fields unset. `spec` must outlive `command`.
void AddGenerationOptions(CLI::App& command, v1::GenerationSpec& spec);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_OPTIONS_H_

#ifndef ANNULUS_CLIENT_CLI_ASK_LOGPROBS_H_
#define ANNULUS_CLIENT_CLI_ASK_LOGPROBS_H_

#include <span>
#include <string>

#include "annulus/v1/inference.pb.h"

namespace annulus::client {

// Returns a table with a row for each token, or "" if there are none. Texts are JSON strings, so
// that blanks and newlines are visible. `columns`: see Table::Render.
std::string LogprobsTable(std::span<const v1::TokenLogprob> logprobs, int columns);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_LOGPROBS_H_

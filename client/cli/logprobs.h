#ifndef ANNULUS_CLIENT_CLI_LOGPROBS_H_
#define ANNULUS_CLIENT_CLI_LOGPROBS_H_

#include <span>
#include <string>

#include "annulus/v1/inference.pb.h"
#include "client/format/json.h"

namespace annulus {

// Log probabilities of an answer's tokens as an array of objects: token_id, text, logprob and
// alternatives.
void WriteLogprobs(std::span<const v1::TokenLogprob> logprobs, JsonWriter& json);

// The same as a table for people: a row for each token, texts as JSON strings, so that blanks and
// line ends are seen. `columns`: see Table::Render. Empty if there are none.
std::string LogprobsTable(std::span<const v1::TokenLogprob> logprobs, int columns);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_LOGPROBS_H_

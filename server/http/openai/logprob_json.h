#ifndef ANNULUS_SERVER_HTTP_OPENAI_LOGPROB_JSON_H_
#define ANNULUS_SERVER_HTTP_OPENAI_LOGPROB_JSON_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/api.h"

namespace annulus::server {

// The text of a token or an alternative, by its index in TokenLogprob::texts; empty if it has none.
absl::string_view LogprobText(const TokenLogprob& logprob, size_t index);

// The log probabilities of a delta as chat and responses tell them: objects with token, logprob,
// bytes and top_logprobs, separated by commas.
std::string LogprobEntries(const Delta& delta);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_LOGPROB_JSON_H_

#ifndef ANNULUS_ENGINE_TEXT_PCRE_DIALECT_H_
#define ANNULUS_ENGINE_TEXT_PCRE_DIALECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Rewrites a pattern of a tokenizer file, which is in Oniguruma's Ruby syntax, for PCRE2 in UTF and
// UCP mode. The two read most of the syntax alike. What they read differently is either rewritten
// (`\s`, `\S`, `\w`, `\W`, `\uHHHH`) or INVALID_ARGUMENT with the construct and its offset; a
// pattern is never matched with another meaning than the file's.
// Source: Oniguruma doc/RE, PCRE2 pcre2pattern(3).
absl::StatusOr<std::string> ToPcreDialect(absl::string_view pattern);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PCRE_DIALECT_H_

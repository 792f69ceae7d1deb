#ifndef ANNULUS_ENGINE_TEXT_STAGES_PCRE_DIALECT_H_
#define ANNULUS_ENGINE_TEXT_STAGES_PCRE_DIALECT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Converts a tokenizer file's pattern from Oniguruma's Ruby syntax to PCRE2 in UTF and UCP mode.
// Most syntax has the same meaning in both. Constructs with a different meaning are either
// rewritten (`\s`, `\S`, `\w`, `\W`, `\uHHHH`) or rejected: INVALID_ARGUMENT with the construct and
// its offset. So a pattern never matches with a meaning other than the file's. Source: Oniguruma
// doc/RE, PCRE2 pcre2pattern(3).
absl::StatusOr<std::string> ToPcreDialect(absl::string_view pattern);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_PCRE_DIALECT_H_

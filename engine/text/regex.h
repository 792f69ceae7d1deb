#ifndef ANNULUS_ENGINE_TEXT_REGEX_H_
#define ANNULUS_ENGINE_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

struct pcre2_real_code_8;

namespace annulus {

// A compiled pattern of a tokenizer file, matched by PCRE2. Immutable and thread-safe.
//
// No pattern can hang or crash its caller: each match is limited in backtracking steps (in
// proportion to the text) and in memory, and the matches of one text together in time. A limit
// reached is INVALID_ARGUMENT with the pattern.
class Regex {
 public:
  // `pattern` is in the dialect that ToPcreDialect describes. INVALID_ARGUMENT for a pattern that
  // does not compile, is longer than kMaxPatternBytes or can match the empty string.
  static absl::StatusOr<Regex> Compile(absl::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Calls `each(begin, end)` for the matches in `text`, leftmost first, none overlapping; stops at
  // an error. `text` must be valid UTF-8.
  absl::Status ForEachMatch(absl::string_view text,
                            absl::FunctionRef<absl::Status(size_t, size_t)> each) const;

 private:
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  Regex(std::unique_ptr<pcre2_real_code_8, FreeCode> code, absl::string_view pattern);

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::string pattern_;
};

inline constexpr size_t kMaxPatternBytes = 16 << 10;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_REGEX_H_

#ifndef ANNULUS_ENGINE_TEXT_REGEX_H_
#define ANNULUS_ENGINE_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"
#include "engine/text/range_scanner.h"
#include "engine/text/text_stage.h"

struct pcre2_real_code_8;

namespace annulus {

// A compiled pattern of a tokenizer file, matched by PCRE2. Immutable and thread-safe.
//
// No pattern can hang or crash its caller: matching counts a step for each item of the pattern that
// is tried and for each few bytes that an item passes over, and is limited in memory. A limit
// reached is INVALID_ARGUMENT with the pattern. A RegexScanner matches.
class Regex {
 public:
  // `pattern` is in the dialect that ToPcreDialect describes. INVALID_ARGUMENT for a pattern that
  // does not compile, is longer than kMaxPatternBytes or can match the empty string.
  static absl::StatusOr<Regex> Compile(absl::string_view pattern);

  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

 private:
  friend class RegexScanner;
  struct FreeCode {
    void operator()(pcre2_real_code_8* code) const;
  };

  Regex(std::unique_ptr<pcre2_real_code_8, FreeCode> code, absl::string_view pattern);

  std::unique_ptr<pcre2_real_code_8, FreeCode> code_;
  std::string pattern_;
  size_t context_characters_ = 0;  // before a place that decide what matches there
};

// Whether PCRE2 can compile patterns to machine code in this process. It cannot where written
// memory may not be executed (systemd's MemoryDenyWriteExecute): then it interprets them, more
// slowly, with the same matches.
bool CompilesToMachineCode();

// Finds the matches of a pattern in texts that come in parts: leftmost first, none overlapping, the
// same however a text is cut. Text is held back while more of it could change a match. Not
// thread-safe.
class RegexScanner : public RangeScanner {
 public:
  // `work` counts the steps of all texts. Both must outlive the scanner.
  RegexScanner(const Regex* regex, WorkMeter* work);
  ~RegexScanner() override;

  absl::Status Push(absl::string_view text, bool end, Sink sink) override;

 private:
  class Matcher;

  absl::Status Scan(absl::string_view text, bool end, size_t* start, Sink sink);
  absl::Status Failed(int result, size_t size) const;

  const Regex* regex_;
  std::unique_ptr<Matcher> matcher_;
  HeldText held_;     // starts with text that is only context
  size_t start_ = 0;  // where the context ends
};
constexpr size_t kMaxPatternBytes = 16 << 10;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_REGEX_H_

#ifndef ANNULUS_ENGINE_TEXT_STAGES_REGEX_H_
#define ANNULUS_ENGINE_TEXT_STAGES_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"
#include "engine/text/stages/range_scanner.h"
#include "engine/text/stages/text_stage.h"

struct pcre2_real_code_8;

namespace annulus {

// A compiled pattern of a tokenizer file, matched by PCRE2 with a RegexScanner. Immutable and
// thread-safe.
//
// No pattern can hang or crash its caller: matching counts a step for each pattern item it tries
// and for every few bytes that an item passes over, and its memory is limited. INVALID_ARGUMENT,
// with the pattern, if a limit is reached.
class Regex {
 public:
  // Compiles a pattern in the dialect that ToPcreDialect returns. INVALID_ARGUMENT if it does not
  // compile, is longer than kMaxPatternBytes, or can match the empty string.
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
  size_t context_characters_ = 0;  // how far back a match can depend on text
};

// Whether PCRE2 can compile patterns to machine code in this process. It cannot if written memory
// may not be executed (systemd's MemoryDenyWriteExecute); then it interprets patterns, more slowly
// but with the same matches.
bool CompilesToMachineCode();

// Finds a pattern's matches in texts given in parts: leftmost first, without overlaps, and
// independent of where the parts are cut. Holds back text while more of it could change a match.
// Not thread-safe.
class RegexScanner : public RangeScanner {
 public:
  // `work` counts the steps for all texts. `regex` and `work` must outlive the scanner.
  RegexScanner(const Regex* regex, WorkMeter* work);
  ~RegexScanner() override;

  absl::Status Push(absl::string_view text, bool end, Sink sink) override;

 private:
  class Matcher;

  absl::Status Scan(absl::string_view text, bool end, size_t* start, Sink sink);
  absl::Status Failed(int result, size_t size) const;

  const Regex* regex_;
  std::unique_ptr<Matcher> matcher_;
  HeldText held_;     // begins with text that is only context
  size_t start_ = 0;  // end of that context
};
constexpr size_t kMaxPatternBytes = 16 << 10;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_REGEX_H_

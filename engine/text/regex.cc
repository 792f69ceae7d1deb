#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/pcre_dialect.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Honest patterns take a few steps per byte. An exploding one is stopped within about 10 ms.
constexpr uint64_t kBaseSteps = 1'000'000;
constexpr uint64_t kStepsPerByte = 16;
constexpr uint32_t kHeapLimitKib = 64 << 10;          // backtracking points of the interpreter
constexpr auto kBaseTime = std::chrono::seconds(10);  // of all the matches in one text
constexpr auto kTimePerByte = std::chrono::microseconds(1);  // honest patterns: about 0.02
constexpr int kMatchesPerClock = 64;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

absl::string_view Shown(absl::string_view pattern) { return TruncateUtf8(pattern, 200); }

// What one pass over a text needs beside the compiled pattern.
class Matcher {
 public:
  Matcher(const pcre2_code* code, absl::string_view text)
      : code_(code),
        text_(text),
        context_(pcre2_match_context_create(nullptr)),
        data_(pcre2_match_data_create(1, nullptr)),
        deadline_(std::chrono::steady_clock::now() + kBaseTime +
                  kTimePerByte * static_cast<int64_t>(text.size())) {
    ANNULUS_CHECK(context_ != nullptr && data_ != nullptr) << "out of memory";
    const uint64_t steps = kBaseSteps + kStepsPerByte * text.size();
    pcre2_set_match_limit(context_.get(),
                          static_cast<uint32_t>(std::min<uint64_t>(steps, UINT32_MAX)));
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  // Searches from `start`. PCRE2_ERROR_NOMATCH, another negative error, or a positive number.
  int Search(size_t start) {
    const int result = Match(start, PCRE2_NO_UTF_CHECK);
    // Machine code keeps its backtracking points in 32 KiB of stack, the interpreter on the heap.
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? Match(start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT)
                                                : result;
  }

  size_t begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(data_.get())[1]; }

  bool OutOfTime() {
    if (++matches_ % kMatchesPerClock != 0) return false;
    return std::chrono::steady_clock::now() > deadline_;
  }

 private:
  int Match(size_t start, uint32_t options) {
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), start,
                       options, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  absl::string_view text_;
  MatchContext context_;
  MatchData data_;
  std::chrono::steady_clock::time_point deadline_;
  int64_t matches_ = 0;
};

}  // namespace

void Regex::FreeCode::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

Regex::Regex(std::unique_ptr<pcre2_real_code_8, FreeCode> code, absl::string_view pattern)
    : code_(std::move(code)), pattern_(pattern) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

absl::StatusOr<Regex> Regex::Compile(absl::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pattern is ", pattern.size(), " bytes long; at most ", kMaxPatternBytes));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string translated, ToPcreDialect(pattern));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  ANNULUS_CHECK(context != nullptr) << "out of memory";
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  constexpr uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  size_t offset = 0;
  std::unique_ptr<pcre2_real_code_8, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions,
                    &error, &offset, context.get()));
  if (code == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("the pattern \"", Shown(pattern),
                                                   "\" does not compile: ", ErrorText(error),
                                                   " near byte ", offset));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the pattern \"", Shown(pattern), "\" can match the empty string; use one that cannot"));
  }
  // Where compilation to machine code is not available the interpreter gives the same matches.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code), pattern);
}

absl::Status Regex::ForEachMatch(absl::string_view text,
                                 absl::FunctionRef<absl::Status(size_t, size_t)> each) const {
  Matcher matcher(code_.get(), text);
  size_t start = 0;
  while (start < text.size()) {
    const int result = matcher.Search(start);
    if (result == PCRE2_ERROR_NOMATCH) return absl::OkStatus();
    if (result < 0 || matcher.OutOfTime()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the pattern \"", Shown(pattern_), "\" of the tokenizer takes too long on this text, ",
          text.size(), " bytes, at byte ", start, ": ",
          result < 0 ? ErrorText(result) : "time limit exceeded"));
    }
    ANNULUS_RETURN_IF_ERROR(each(matcher.begin(), matcher.end()));
    start = matcher.end();
  }
  return absl::OkStatus();
}

}  // namespace annulus

#include "engine/text/stages/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/stages/pcre_dialect.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr uint32_t kHeapLimitKib = 64 << 10;  // backtracking points of the interpreter
constexpr size_t kBatch = 64;                 // matches found before they are passed on

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

}  // namespace

// State for matching a text, besides the compiled pattern.
//
// The library's own limits do not bound its work: compiled to machine code a pattern counts anew at
// every place of the text, and passing over a run of characters counts nothing. So the library
// calls back before every item of the pattern, and the steps are counted here.
class RegexScanner::Matcher {
 public:
  Matcher(const pcre2_code* code, WorkMeter* work)
      : code_(code),
        work_(*work),
        context_(pcre2_match_context_create(nullptr)),
        data_(pcre2_match_data_create(1, nullptr)) {
    ANNULUS_CHECK(context_ != nullptr && data_ != nullptr) << "out of memory";
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    pcre2_set_match_limit(context_.get(), UINT32_MAX);
    pcre2_set_depth_limit(context_.get(), UINT32_MAX);
    pcre2_set_callout(context_.get(), &OnItem, this);
  }

  // Sets the text of the searches that follow; `more` may come behind it, and then a search does
  // not find what that could change.
  void Start(absl::string_view text, bool more) {
    text_ = text;
    options_ = PCRE2_NO_UTF_CHECK | (more ? PCRE2_PARTIAL_HARD : 0u);
  }

  // Searches for consecutive matches, from `start` on, and puts them into `matches`, at most kBatch
  // of them. Gives the number of them, and in `result` what the last search gave.
  size_t SearchBatch(size_t start, int* result) {
    size_t count = 0;
    *result = 1;
    while (count < kBatch && start < text_.size()) {
      *result = Search(start);
      if (*result < 0) break;
      const size_t* match = pcre2_get_ovector_pointer(data_.get());
      matches[count++] = {match[0], match[1]};
      start = match[1];
    }
    return count;
  }

  // Where the partial match of the last search begins.
  size_t partial_begin() const { return pcre2_get_ovector_pointer(data_.get())[0]; }

  // Why a search gave PCRE2_ERROR_CALLOUT.
  const absl::Status& status() const { return status_; }

  std::array<std::pair<size_t, size_t>, kBatch> matches;

 private:
  static int OnItem(pcre2_callout_block* block, void* matcher) {
    return static_cast<Matcher*>(matcher)->Count(block->current_position);
  }

  // An item is tried at `position`. The item before it, or going back to an earlier one, took work
  // in proportion to the distance from the last position.
  int Count(size_t position) {
    const size_t distance = position > position_ ? position - position_ : position_ - position;
    position_ = position;
    status_ = work_.Step(StepsFor(4 * distance));
    return status_.ok() ? 0 : PCRE2_ERROR_CALLOUT;
  }

  // PCRE2_ERROR_NOMATCH, PCRE2_ERROR_PARTIAL, another negative error, or a positive number.
  int Search(size_t start) {
    const int result = Match(start, options_);
    // Machine code keeps its backtracking points in 32 KiB of stack, the interpreter on the heap.
    return result == PCRE2_ERROR_JIT_STACKLIMIT ? Match(start, options_ | PCRE2_NO_JIT) : result;
  }

  int Match(size_t start, uint32_t options) {
    position_ = start;
    return pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), start,
                       options, data_.get(), context_.get());
  }

  const pcre2_code* code_;
  WorkMeter& work_;
  MatchContext context_;
  MatchData data_;
  absl::string_view text_;
  uint32_t options_ = 0;
  size_t position_ = 0;  // where an item was tried last
  absl::Status status_;
};

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
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE |
                                PCRE2_NEVER_BACKSLASH_C | PCRE2_AUTO_CALLOUT;
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
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
  uint32_t lookbehind = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
  Regex regex(std::move(code), pattern);
  // The library tells the longest look-behind, but they can stand inside each other. One character
  // is kept in any case, so that a start of text is never seen in its middle.
  const auto count = static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '<'));
  regex.context_characters_ = std::max<size_t>(1, lookbehind * (1 + count));
  return regex;
}

bool CompilesToMachineCode() {
  int error = 0;
  size_t offset = 0;
  const std::unique_ptr<pcre2_real_code_8, decltype(&pcre2_code_free_8)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>("a"), 1, 0, &error, &offset, nullptr),
      &pcre2_code_free_8);
  return code != nullptr && pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
}

RegexScanner::RegexScanner(const Regex* regex, WorkMeter* work)
    : regex_(regex), matcher_(std::make_unique<Matcher>(regex->code_.get(), work)) {}
RegexScanner::~RegexScanner() = default;

absl::Status RegexScanner::Failed(int result, size_t size) const {
  const absl::Status& stopped = matcher_->status();
  if (!stopped.ok() && !absl::IsInvalidArgument(stopped)) return stopped;
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern \"", Shown(regex_->pattern_),
                   "\" of the tokenizer takes too long on this text, near a run of ", size,
                   " bytes: ", stopped.ok() ? ErrorText(result) : stopped.message()));
}

absl::Status RegexScanner::Push(absl::string_view text, bool end, Sink sink) {
  ANNULUS_ASSIGN_OR_RETURN(const bool enough, held_.Add(text, end));
  if (!enough) return absl::OkStatus();
  const absl::string_view view = held_.view();
  size_t start = start_;
  matcher_->Start(view, !end);
  ANNULUS_RETURN_IF_ERROR(Scan(view, end, &start, sink));
  if (end) {
    start_ = 0;
    held_.Drop(view.size());
    return absl::OkStatus();
  }
  size_t context = start;
  for (size_t i = 0; i < regex_->context_characters_ && context > 0; ++i) {
    --context;
    while (context > 0 && IsUtf8Continuation(view[context])) --context;
  }
  held_.Drop(context);
  start_ = start - context;
  return absl::OkStatus();
}

absl::Status RegexScanner::Scan(absl::string_view text, bool end, size_t* start, Sink sink) {
  size_t done = *start;
  const auto gap = [&](size_t until) {
    return until > done ? sink(text.substr(done, until - done), false) : absl::OkStatus();
  };
  while (done < text.size()) {
    int result = 0;
    const size_t count = matcher_->SearchBatch(done, &result);
    for (size_t i = 0; i < count; ++i) {
      const auto [match_begin, match_end] = matcher_->matches[i];
      ANNULUS_RETURN_IF_ERROR(gap(match_begin));
      ANNULUS_RETURN_IF_ERROR(sink(text.substr(match_begin, match_end - match_begin), true));
      done = match_end;
    }
    if (result == PCRE2_ERROR_NOMATCH || (result == PCRE2_ERROR_PARTIAL && !end)) {
      *start = result == PCRE2_ERROR_NOMATCH ? text.size() : matcher_->partial_begin();
      return gap(*start);
    }
    if (result < 0) return Failed(result, text.size());
  }
  *start = done;
  return absl::OkStatus();
}

}  // namespace annulus

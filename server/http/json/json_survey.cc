#include "server/http/json/json_survey.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json/json_run.h"

namespace annulus::server {
namespace {

// Finds the longest string, and words that are too long.
class Surveyor {
 public:
  absl::Status Take(absl::string_view piece) {
    const char* const end = piece.data() + piece.size();
    for (const char* at = piece.data(); at != end;) {
      if (in_string_) {
        at = TakeString(at, end);
      } else {
        ANNULUS_RETURN_IF_ERROR(TakeOutside(*at++));
      }
    }
    longest_ = std::max(longest_, size_);
    return absl::OkStatus();
  }
  size_t longest() const { return longest_; }

 private:
  const char* TakeString(const char* at, const char* end) {
    if (std::exchange(escaped_, false)) {
      ++size_;
      return at + 1;
    }
    const size_t run = JsonRun<false>(at, end);
    size_ += run;
    at += run;
    if (at == end) return at;
    escaped_ = *at == '\\';
    if (!escaped_) {
      longest_ = std::max(longest_, size_);
      in_string_ = false;
    }
    return at + 1;
  }

  absl::Status TakeOutside(char c) {
    if (c == '"') {
      in_string_ = true;
      size_ = 0;
    } else if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '+' &&
               c != '.') {
      word_ = 0;
    } else if (++word_ > kLongestJsonWord) {
      return FieldError("", absl::StrCat("the body has a number or word of more than ",
                                         kLongestJsonWord, " characters"));
    }
    return absl::OkStatus();
  }

  bool in_string_ = false;
  bool escaped_ = false;
  size_t word_ = 0;
  size_t size_ = 0;  // of the string
  size_t longest_ = 0;
};

}  // namespace

absl::StatusOr<JsonSurvey> SurveyJson(const std::deque<std::string>& pieces,
                                      const CancelFlag& cancel) {
  Surveyor surveyor;
  for (const std::string& piece : pieces) {
    cancel.MayPause();
    if (cancel.cancelled()) return absl::CancelledError("the request was cancelled");
    ANNULUS_RETURN_IF_ERROR(surveyor.Take(piece));
  }
  return JsonSurvey{std::max(surveyor.longest(), kLongestJsonWord)};
}

}  // namespace annulus::server

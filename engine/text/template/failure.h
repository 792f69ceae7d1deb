#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_FAILURE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_FAILURE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus::jinja {

// What every part of this folder throws and ChatTemplate alone catches: in a language where each
// sub-expression can fail, a Status in every return would be most of the code. No other exception
// is thrown on purpose, and none leaves the folder.
struct Failure {
  std::string message;  // without file and line
  int line = 0;         // 0: the line that is being evaluated
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Failure{absl::StrCat(parts...), 0};
}

[[noreturn]] inline void FailWith(const absl::Status& status) {
  throw Failure{std::string(status.message()), 0, status.code()};
}

template <typename... Parts>
[[noreturn]] void FailAt(int line, const Parts&... parts) {
  throw Failure{absl::StrCat(parts...), line};
}

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_FAILURE_H_

#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_FAILURE_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_FAILURE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace annulus::jinja {

// The exception that all parts of this folder throw and only ChatTemplate catches. Since every
// sub-expression can fail, returning a Status everywhere would be most of the code. No other
// exception is thrown on purpose, and none leaves the folder.
struct Failure {
  std::string message;  // without file and line
  int line = 0;         // 0: the line being evaluated
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
  absl::Status refusal = absl::OkStatus();  // error of a MemoryGrant, to be returned unchanged
};

template <typename... Parts>
[[noreturn]] void Fail(const Parts&... parts) {
  throw Failure{absl::StrCat(parts...), 0};
}

[[noreturn]] inline void FailWith(const absl::Status& status) {
  throw Failure{std::string(status.message()), 0, status.code()};
}

[[noreturn]] inline void Refuse(absl::Status status) {
  throw Failure{.message = "", .refusal = std::move(status)};
}

template <typename... Parts>
[[noreturn]] void FailAt(int line, const Parts&... parts) {
  throw Failure{absl::StrCat(parts...), line};
}

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_FAILURE_H_

#include "engine/coordinator/admission/wait_error.h"

#include "absl/strings/str_cat.h"

namespace annulus {

absl::Status WaitError(const Request& request, const std::string& awaited) {
  std::string text = absl::StrCat("the ring has waited too long for ", awaited,
                                  "; send the request again when the server is ready");
  if (const int64_t tokens = request.completion_tokens(); tokens > 0) {
    absl::StrAppend(&text, ", or append the answer's ", tokens,
                    " tokens to the prompt elsewhere; its seed was ",
                    request.spec().sampling.seed.value_or(0));
  }
  return absl::UnavailableError(text);
}

}  // namespace annulus

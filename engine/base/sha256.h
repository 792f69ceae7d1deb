#ifndef ANNULUS_ENGINE_BASE_SHA256_H_
#define ANNULUS_ENGINE_BASE_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// The SHA-256 of the bytes as 64 lower-case hexadecimal digits.
std::string Sha256Of(absl::string_view bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_SHA256_H_

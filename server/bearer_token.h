#ifndef ANNULUS_SERVER_BEARER_TOKEN_H_
#define ANNULUS_SERVER_BEARER_TOKEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The first line of the file that `option` names, without white space around it. NOT_FOUND or
// INVALID_ARGUMENT if there is no such regular file, or the line is empty.
absl::StatusOr<std::string> ReadTokenFile(absl::string_view option, const std::string& path);

// What is kept of a token: its SHA-256, in hexadecimal.
std::string TokenDigest(absl::string_view token);

// Whether `header`, the value of "authorization", is "Bearer TOKEN" with the token of that digest.
// Takes as long for every wrong token.
bool IsBearerToken(absl::string_view header, const std::string& digest);

}  // namespace annulus

#endif  // ANNULUS_SERVER_BEARER_TOKEN_H_

#ifndef ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_
#define ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// The SHA-256 of a token; the token itself is not kept. A fast hash without salt is safe, because
// tokens are long and random; CheckNewToken rejects those that could be guessed.
class TokenHash {
 public:
  static TokenHash Of(absl::string_view token);

  // Parses "sha256:" and 64 lower-case hexadecimal digits. INVALID_ARGUMENT otherwise, without
  // quoting the text.
  static absl::StatusOr<TokenHash> Parse(absl::string_view text);
  std::string text() const;

  // Compares in constant time.
  bool Is(const TokenHash& other) const;

 private:
  std::array<uint8_t, 32> bytes_{};
};

// INVALID_ARGUMENT, with how to make a better token, if it is too short to be safe or has
// characters that a header cannot carry.
absl::Status CheckNewToken(absl::string_view token);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_

#ifndef ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_
#define ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What is kept of a token: its SHA-256. Tokens are long and random, so a hash that is quick and has
// no salt gives nothing away; CheckNewToken keeps out those that people make up.
class TokenHash {
 public:
  static TokenHash Of(absl::string_view token);

  // "sha256:" and 64 lower-case hexadecimal digits.
  static absl::StatusOr<TokenHash> Parse(absl::string_view text);
  std::string text() const;

  // Takes as long whether and wherever the two differ.
  bool Is(const TokenHash& other) const;

 private:
  std::array<uint8_t, 32> bytes_{};
};

// INVALID_ARGUMENT, with how to make a better one, for a token that could be guessed by its length,
// or that no header can carry.
absl::Status CheckNewToken(absl::string_view token);

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_TOKEN_HASH_H_

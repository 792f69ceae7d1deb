#include "server/identity/token_hash.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace annulus::server {
namespace {

constexpr char kPrefix[] = "sha256:";
constexpr size_t kShortestToken = 20;

}  // namespace

TokenHash TokenHash::Of(absl::string_view token) {
  TokenHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.bytes_.data());
  return hash;
}

absl::StatusOr<TokenHash> TokenHash::Parse(absl::string_view text) {
  TokenHash hash;
  absl::string_view digits = text;
  const bool allowed =
      absl::ConsumePrefix(&digits, kPrefix) && digits.size() == 2 * hash.bytes_.size() &&
      std::all_of(digits.begin(), digits.end(),
                  [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
  if (!allowed) {
    // Do not quote the text: it may be the token itself.
    return absl::InvalidArgumentError(
        "the value of token is not a hash: \"sha256:\" and 64 hexadecimal digits, as printed by "
        "annulusd --hash-token");
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  std::copy(bytes.begin(), bytes.end(), hash.bytes_.begin());
  return hash;
}

std::string TokenHash::text() const {
  return absl::StrCat(kPrefix, absl::BytesToHexString(absl::string_view(
                                   reinterpret_cast<const char*>(bytes_.data()), bytes_.size())));
}

bool TokenHash::Is(const TokenHash& other) const {
  return CRYPTO_memcmp(bytes_.data(), other.bytes_.data(), bytes_.size()) == 0;
}

absl::Status CheckNewToken(absl::string_view token) {
  if (token.size() < kShortestToken) {
    return absl::InvalidArgumentError(
        absl::StrCat("the token has ", token.size(), " characters and needs at least ",
                     kShortestToken, "; make one with: openssl rand -hex 32"));
  }
  for (const char c : token) {
    if (absl::ascii_isgraph(static_cast<unsigned char>(c))) continue;
    return absl::InvalidArgumentError(
        "the token has a space or a character that is not printable ASCII; make one with: openssl "
        "rand -hex 32");
  }
  return absl::OkStatus();
}

}  // namespace annulus::server

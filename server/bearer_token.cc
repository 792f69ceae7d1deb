#include "server/bearer_token.h"

#include <openssl/crypto.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/config/plain_file.h"
#include "server/sha256.h"

namespace annulus {
namespace {

constexpr size_t kLongestTokenFile = 64 << 10;

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(absl::string_view option, const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string content,
                           ReadPlainFile(option, path, kLongestTokenFile));
  const absl::string_view line = absl::string_view(content).substr(0, content.find('\n'));
  const absl::string_view token = absl::StripAsciiWhitespace(line);
  if (token.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": the first line of ", path, " is empty; it must hold the token"));
  }
  return std::string(token);
}

std::string TokenDigest(absl::string_view token) {
  Sha256 hash;
  hash.Update(token);
  return hash.FinishHex();
}

bool IsBearerToken(absl::string_view header, const std::string& digest) {
  // Digests have one length and are compared in constant time, so timing tells nothing.
  return absl::ConsumePrefix(&header, "Bearer ") &&
         CRYPTO_memcmp(TokenDigest(header).data(), digest.data(), digest.size()) == 0;
}

}  // namespace annulus

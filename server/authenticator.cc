#include "server/authenticator.h"

#include <openssl/crypto.h>

#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/errors.h"
#include "server/sha256.h"

namespace annulus {
namespace {

std::string Digest(absl::string_view token) {
  Sha256 hash;
  hash.Update(token);
  return hash.FinishHex();
}

class Everybody final : public Authenticator {
 public:
  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext&) const override {
    return Identity();
  }
};

class OneToken final : public Authenticator {
 public:
  // `digest`: SHA-256 of the token.
  explicit OneToken(std::string digest) : digest_(std::move(digest)) {}

  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const override {
    const auto header = call.client_metadata().find("authorization");
    if (header != call.client_metadata().end()) {
      absl::string_view value(header->second.data(), header->second.size());
      // Digests have one length and are compared in constant time, so timing tells nothing.
      if (absl::ConsumePrefix(&value, "Bearer ") &&
          CRYPTO_memcmp(Digest(value).data(), digest_.data(), digest_.size()) == 0) {
        return Identity();
      }
    }
    return ReasonError(absl::StatusCode::kUnauthenticated, v1::ERROR_REASON_TOKEN_REJECTED,
                       header == call.client_metadata().end()
                           ? "this server needs a bearer token in the metadata \"authorization\""
                           : "the bearer token is not the one that this server knows");
  }

 private:
  const std::string digest_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Authenticator>> Authenticator::FromFile(
    const std::string& token_file) {
  if (token_file.empty()) return std::make_unique<Everybody>();
  std::ifstream stream(token_file);
  if (!stream) {
    return absl::NotFoundError(absl::StrCat("cannot open the token file ", token_file));
  }
  std::string line;
  std::getline(stream, line);
  const absl::string_view token = absl::StripAsciiWhitespace(line);
  if (token.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first line of the token file ", token_file, " is empty"));
  }
  return std::make_unique<OneToken>(Digest(token));
}

}  // namespace annulus

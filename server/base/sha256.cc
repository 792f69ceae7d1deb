#include "server/base/sha256.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "kernels/base/check.h"

namespace annulus::server {

void Sha256::FreeContext::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  ANNULUS_CHECK(context_ != nullptr) << "no memory for a digest";
  ANNULUS_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1)
      << "libcrypto has no SHA-256";
}

void Sha256::Update(absl::string_view bytes) {
  ANNULUS_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1)
      << "SHA-256 failed";
}

std::string Sha256::FinishHex() {
  std::array<unsigned char, 32> digest;
  unsigned int size = 0;
  ANNULUS_CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), &size) == 1 &&
                size == digest.size())
      << "SHA-256 failed";
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

}  // namespace annulus::server

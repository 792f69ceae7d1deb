#ifndef ANNULUS_SERVER_BASE_SHA256_H_
#define ANNULUS_SERVER_BASE_SHA256_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace annulus::server {

// Computes the SHA-256 (FIPS 180-4) of bytes that arrive in pieces. Not thread-safe.
class Sha256 {
 public:
  Sha256();
  void Update(absl::string_view bytes);
  // Returns the digest as 64 lower-case hexadecimal digits. Call it last.
  std::string FinishHex();

 private:
  struct FreeContext {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, FreeContext> context_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_SHA256_H_

#ifndef ANNULUS_SERVER_IDENTITY_TLS_FILES_H_
#define ANNULUS_SERVER_IDENTITY_TLS_FILES_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/server_config.h"

namespace annulus::server {

// The contents of the TLS files: certificate, key, and the client CA. Reload reads the files again.
// Thread-safe.
class TlsFiles {
 public:
  struct Pems {
    std::string certificate;  // the server's certificate and its chain
    std::string key;
    std::string client_ca;  // empty: clients need no certificate
  };

  // Returns null without TLS. NOT_FOUND or INVALID_ARGUMENT if a file cannot be read or is not PEM,
  // or if the key does not belong to the certificate.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> Open(const ServerConfig& config);

  // Reads the files again. The certificate with its key and the client CA take effect
  // independently: if one of the two is broken, its previous content stays in use, and the error
  // says why.
  absl::Status Reload();

  std::shared_ptr<const Pems> current() const;

 private:
  explicit TlsFiles(const ServerConfig& config)
      : certificate_(config.tls_certificate),
        key_(config.tls_key),
        client_ca_(config.tls_client_ca) {}

  absl::Status ReadPair(Pems& into) const;
  absl::Status ReadSigners(Pems& into) const;

  const std::string certificate_;
  const std::string key_;
  const std::string client_ca_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Pems> current_;
};

// The expiry time of a certificate in use.
struct CertificateEnd {
  std::string option;   // the option that names its file: "tls-certificate" or "tls-client-ca"
  int position = 0;     // in that file, from 1
  int64_t seconds = 0;  // since 1970-01-01 00:00 UTC
};

// Returns the expiry times of all certificates in `pems`, in file order.
std::vector<CertificateEnd> EndsOf(const TlsFiles::Pems& pems);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_TLS_FILES_H_

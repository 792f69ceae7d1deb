#ifndef ANNULUS_SERVER_TLS_CREDENTIALS_H_
#define ANNULUS_SERVER_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/config/server_config.h"

namespace annulus {

// The files of TLS: certificate and key, and the certificates of those who sign clients'. Reload
// reads them again. Thread-safe.
class TlsFiles {
 public:
  struct Pems {
    std::string certificate;  // a chain
    std::string key;
    std::string client_ca;  // empty: clients need no certificate
  };

  // Null without TLS. NOT_FOUND, INVALID_ARGUMENT: a file cannot be read, is not PEM, or the key is
  // not the certificate's.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> Open(const ServerConfig& config);

  // The certificate with its key takes effect by itself, and so do the signers: after an error what
  // it is about stays as it was, and the other is used all the same.
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

// When a certificate in use ends.
struct CertificateEnd {
  std::string option;   // whose file it is in: "tls-certificate" or "tls-client-ca"
  int position = 0;     // in that file, from 1
  int64_t seconds = 0;  // since 1970-01-01 00:00 UTC
};

// Of all certificates in `pems`, in the order of the files.
std::vector<CertificateEnd> EndsOf(const TlsFiles::Pems& pems);

// Every new connection is met with what `files` holds then; connections that stand go on. With
// certificates of signers, clients must have one that they signed. Null: without TLS.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(std::shared_ptr<TlsFiles> files);

}  // namespace annulus

#endif  // ANNULUS_SERVER_TLS_CREDENTIALS_H_

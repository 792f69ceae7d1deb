#ifndef ANNULUS_TESTS_SERVER_HTTP_TLS_CLIENT_H_
#define ANNULUS_TESTS_SERVER_HTTP_TLS_CLIENT_H_

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/base/pem.h"
#include "tests/server/certificates.h"
#include "tests/server/test_server.h"

namespace annulus::server {

// A connection to 127.0.0.1, plain until Encrypt. Nothing blocks for longer than 10 s.
class TlsClient {
 public:
  explicit TlsClient(int port) : descriptor_(Connect(absl::StrCat("127.0.0.1:", port))) {
    const timeval limit{10, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  ~TlsClient() {
    session_.reset();
    close(descriptor_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  void SendPlain(const std::string& bytes) const {
    (void)!send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  // Whether the handshake succeeds with a server that has this certificate.
  bool Encrypt(const std::string& trusted, const TestIdentity* own = nullptr) {
    const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(
        SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()),
                        NextCertificate(OpenPem(trusted).get()).get());
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (own != nullptr) {
      SSL_CTX_use_certificate(context.get(),
                              NextCertificate(OpenPem(own->certificate).get()).get());
      SSL_CTX_use_PrivateKey(context.get(), ReadPrivateKey(own->key).get());
    }
    session_.reset(SSL_new(context.get()));
    SSL_set_fd(session_.get(), descriptor_);
    const bool done = SSL_connect(session_.get()) == 1;
    ERR_clear_error();
    return done;
  }

  // Up to the end of the connection; empty where the server ended it.
  std::string Ask(const std::string& bytes) {
    SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
    std::string text;
    char buffer[4096];
    for (int n; (n = SSL_read(session_.get(), buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
    ERR_clear_error();
    return text;
  }

 private:
  const int descriptor_;
  std::unique_ptr<SSL, decltype(&SSL_free)> session_{nullptr, &SSL_free};
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP_TLS_CLIENT_H_

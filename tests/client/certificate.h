#ifndef ANNULUS_TESTS_CLIENT_CERTIFICATE_H_
#define ANNULUS_TESTS_CLIENT_CERTIFICATE_H_

#include <string>

namespace annulus::testing {

struct Certificate {
  std::string certificate;  // PEM, its own issuer
  std::string key;          // PEM
};

// A new self-signed certificate for the DNS name `host`, valid for an hour.
Certificate MakeCertificate(const std::string& host);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_CERTIFICATE_H_

#ifndef ANNULUS_TESTS_SERVER_CERTIFICATES_H_
#define ANNULUS_TESTS_SERVER_CERTIFICATES_H_

#include <string>

namespace annulus::server {

// A certificate and its key, in PEM form.
struct TestIdentity {
  std::string certificate;
  std::string key;
};

// A certificate for `host`, a name or an IPv4 address, signed by itself, that ends in so many
// seconds.
TestIdentity MakeIdentity(const std::string& host = "localhost", long seconds = 3600);

// A certificate for `host` that `signer` has signed. `authority`: it may sign others.
TestIdentity MakeSigned(const std::string& host, const TestIdentity& signer, bool authority);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_CERTIFICATES_H_

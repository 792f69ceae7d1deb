#ifndef ANNULUS_SERVER_BASE_CERTIFICATE_NAMES_H_
#define ANNULUS_SERVER_BASE_CERTIFICATE_NAMES_H_

#include <openssl/x509.h>

#include <string>
#include <vector>

namespace annulus::server {

// The names that identify a certificate's owner: DNS, URI, email and address alternative names, and
// common names.
std::vector<std::string> NamesIn(X509* certificate);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_CERTIFICATE_NAMES_H_

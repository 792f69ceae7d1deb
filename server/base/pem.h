#ifndef ANNULUS_SERVER_BASE_PEM_H_
#define ANNULUS_SERVER_BASE_PEM_H_

// Reads PEM texts with OpenSSL. Failures leave their reason in OpenSSL's error queue; the caller
// must clear it.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace annulus::server {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// `pem` must outlive the returned Bio.
Bio OpenPem(const std::string& pem);

// Returns null at the end, or if a certificate cannot be read.
Certificate NextCertificate(BIO* pems);

// Returns null if the key cannot be read or has a password.
PrivateKey ReadPrivateKey(const std::string& pem);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_BASE_PEM_H_

#ifndef ANNULUS_SERVER_PEM_H_
#define ANNULUS_SERVER_PEM_H_

// Texts in PEM form, read by OpenSSL. What cannot be read leaves its reason in OpenSSL's queue of
// errors: who looks at it, or goes on, clears it.

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

namespace annulus {

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

// `pem` must outlive what is returned.
Bio OpenPem(const std::string& pem);

// Null at the end, or where one cannot be read.
Certificate NextCertificate(BIO* pems);

// Null for a key that cannot be read, or has a password.
PrivateKey ReadPrivateKey(const std::string& pem);

}  // namespace annulus

#endif  // ANNULUS_SERVER_PEM_H_

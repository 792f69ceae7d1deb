#include "server/base/pem.h"

#include <openssl/pem.h>

namespace annulus::server {
namespace {

int NoPassword(char*, int, int, void*) { return 0; }

}  // namespace

Bio OpenPem(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), &BIO_free);
}

Certificate NextCertificate(BIO* pems) {
  return Certificate(PEM_read_bio_X509(pems, nullptr, NoPassword, nullptr), &X509_free);
}

PrivateKey ReadPrivateKey(const std::string& pem) {
  return PrivateKey(PEM_read_bio_PrivateKey(OpenPem(pem).get(), nullptr, NoPassword, nullptr),
                    &EVP_PKEY_free);
}

}  // namespace annulus::server

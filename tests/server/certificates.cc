#include "tests/server/certificates.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "server/base/pem.h"

namespace annulus::server {
namespace {

template <typename Write>
std::string ToPem(Write write) {
  BIO* bio = BIO_new(BIO_s_mem());
  EXPECT_EQ(write(bio), 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string pem(data, static_cast<size_t>(size));
  BIO_free(bio);
  return pem;
}

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

// Signs with the identity's own key if `signer` is null.
TestIdentity Make(const std::string& host, long seconds, const TestIdentity* signer,
                  bool authority) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(host.c_str()), -1, -1, 0);
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos;
  AddExtension(certificate, NID_subject_alt_name, (is_address ? "IP:" : "DNS:") + host);
  if (authority) AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  if (signer == nullptr) {
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
  } else {
    const Certificate issuer = NextCertificate(OpenPem(signer->certificate).get());
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer.get()));
    X509_sign(certificate, ReadPrivateKey(signer->key).get(), EVP_sha256());
  }
  TestIdentity identity;
  identity.certificate = ToPem([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
  identity.key = ToPem([&](BIO* bio) {
    return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(certificate);
  EVP_PKEY_free(key);
  return identity;
}

}  // namespace

TestIdentity MakeIdentity(const std::string& host, long seconds) {
  return Make(host, seconds, nullptr, false);
}

TestIdentity MakeSigned(const std::string& host, const TestIdentity& signer, bool authority) {
  return Make(host, 3600, &signer, authority);
}

}  // namespace annulus::server

#include "server/base/certificate_names.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/asn1.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstddef>
#include <memory>

namespace annulus::server {
namespace {

void AddText(const ASN1_STRING* text, std::vector<std::string>& names) {
  unsigned char* bytes = nullptr;
  const int size = ASN1_STRING_to_UTF8(&bytes, text);
  if (size < 0) return;
  names.emplace_back(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
}

void AddAddress(const ASN1_OCTET_STRING* address, std::vector<std::string>& names) {
  const int family = ASN1_STRING_length(address) == sizeof(in_addr) ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(address) != sizeof(in6_addr)) return;
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  names.emplace_back(text.data());
}

}  // namespace

std::vector<std::string> NamesIn(X509* certificate) {
  std::vector<std::string> names;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> alternatives(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      &GENERAL_NAMES_free);
  for (int i = 0; i < sk_GENERAL_NAME_num(alternatives.get()); ++i) {
    int type = 0;
    const void* const value =
        GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(alternatives.get(), i), &type);
    if (type == GEN_DNS || type == GEN_URI || type == GEN_EMAIL) {
      AddText(static_cast<const ASN1_STRING*>(value), names);
    } else if (type == GEN_IPADD) {
      AddAddress(static_cast<const ASN1_OCTET_STRING*>(value), names);
    }
  }
  X509_NAME* const subject = X509_get_subject_name(certificate);
  for (int i = -1; (i = X509_NAME_get_index_by_NID(subject, NID_commonName, i)) >= 0;) {
    AddText(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, i)), names);
  }
  return names;
}

}  // namespace annulus::server

#include "server/identity/tls_files.h"

#include <openssl/err.h>
#include <openssl/pemerr.h>
#include <openssl/x509.h>

#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/base/pem.h"
#include "server/config/plain_file.h"

namespace annulus::server {
namespace {

constexpr size_t kMostPemBytes = size_t{1} << 20;

absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(std::string content, ReadPlainFile(option, path, kMostPemBytes));
  if (content.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", path, " is not a PEM file: it has no line -----BEGIN ...-----"));
  }
  return content;
}

// Checks that a file has at least one certificate and that each can be read.
absl::Status CheckCertificates(absl::string_view option, const std::string& pem) {
  const Bio pems = OpenPem(pem);
  int read = 0;
  while (NextCertificate(pems.get()) != nullptr) ++read;
  const unsigned long error = ERR_peek_last_error();
  const bool at_end =
      ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  ERR_clear_error();
  if (read > 0 && at_end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": certificate ", read + 1,
                   " of the file cannot be read; give certificates in PEM form, one or more, each "
                   "with its BEGIN and END lines"));
}

// Checks that certificate and key belong together. Otherwise every handshake would fail.
absl::Status CheckPair(const TlsFiles::Pems& pems) {
  ANNULUS_RETURN_IF_ERROR(CheckCertificates("tls-certificate", pems.certificate));
  const Certificate certificate = NextCertificate(OpenPem(pems.certificate).get());
  const PrivateKey key = ReadPrivateKey(pems.key);
  const bool fits = certificate != nullptr && key != nullptr &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "tls-key does not match tls-certificate, or cannot be read; give the key of the first "
      "certificate in the file, without a password");
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsFiles>> TlsFiles::Open(const ServerConfig& config) {
  if (config.tls_certificate.empty()) return nullptr;
  std::shared_ptr<TlsFiles> files(new TlsFiles(config));
  ANNULUS_RETURN_IF_ERROR(files->Reload());
  return files;
}

absl::Status TlsFiles::ReadPair(Pems& into) const {
  Pems pair;
  ANNULUS_ASSIGN_OR_RETURN(pair.certificate, ReadPem("tls-certificate", certificate_));
  ANNULUS_ASSIGN_OR_RETURN(pair.key, ReadPem("tls-key", key_));
  ANNULUS_RETURN_IF_ERROR(CheckPair(pair));
  into.certificate = std::move(pair.certificate);
  into.key = std::move(pair.key);
  return absl::OkStatus();
}

absl::Status TlsFiles::ReadSigners(Pems& into) const {
  if (client_ca_.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(std::string signers, ReadPem("tls-client-ca", client_ca_));
  ANNULUS_RETURN_IF_ERROR(CheckCertificates("tls-client-ca", signers));
  into.client_ca = std::move(signers);
  return absl::OkStatus();
}

absl::Status TlsFiles::Reload() {
  const std::shared_ptr<const Pems> before = current();
  auto pems = before == nullptr ? std::make_shared<Pems>() : std::make_shared<Pems>(*before);
  absl::Status status = ReadPair(*pems);
  status.Update(ReadSigners(*pems));
  if (before == nullptr && !status.ok()) return status;  // no previous content to keep
  std::lock_guard lock(mutex_);
  current_ = std::move(pems);
  return status;
}

std::shared_ptr<const TlsFiles::Pems> TlsFiles::current() const {
  std::lock_guard lock(mutex_);
  return current_;
}

std::vector<CertificateEnd> EndsOf(const TlsFiles::Pems& pems) {
  std::vector<CertificateEnd> ends;
  for (const auto& [option, text] : {std::pair("tls-certificate", &pems.certificate),
                                     std::pair("tls-client-ca", &pems.client_ca)}) {
    const Bio file = OpenPem(*text);
    for (int position = 1; const Certificate certificate = NextCertificate(file.get());
         ++position) {
      std::tm time{};
      if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &time) != 1) continue;
      ends.push_back({option, position, timegm(&time)});
    }
  }
  ERR_clear_error();
  return ends;
}

}  // namespace annulus::server

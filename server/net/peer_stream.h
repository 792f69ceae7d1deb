#ifndef ANNULUS_SERVER_NET_PEER_STREAM_H_
#define ANNULUS_SERVER_NET_PEER_STREAM_H_

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/identity/tls_files.h"

namespace annulus::server {

// The byte stream of one accepted connection, plain or TLS. Never waits for the peer. Not
// thread-safe.
// Whether the peer has closed its side or the connection broke, though bytes that came before may
// still be read.
bool PeerHasLeft(int descriptor);

class PeerStream {
 public:
  enum class Outcome : uint8_t { kMoved, kWaitToRead, kWaitToWrite, kEnded };
  struct Result {
    Outcome outcome;
    size_t bytes = 0;  // number of bytes moved; > 0 if and only if kMoved
  };

  virtual ~PeerStream() = default;
  bool peer_has_left() const { return PeerHasLeft(descriptor_); }
  // Continues the handshake, as Read and Write do too. kMoved: it is complete, or there is none.
  virtual Outcome Handshake() { return Outcome::kMoved; }
  // Whether a handshake has yet to be completed, of which a step may take a millisecond.
  virtual bool in_handshake() const { return false; }
  // After Handshake returned kEnded: what was wrong with what the peer sent or refused, for people.
  // Empty: it left, or the connection broke.
  virtual std::string failure() const { return {}; }
  // kEnded if the peer closed its side, if the connection broke, or if TLS failed.
  virtual Result Read(void* buffer, size_t size) = 0;
  virtual Result Write(const void* bytes, size_t size) = 0;
  // Tells the peer that nothing more will be written.
  virtual void EndWriting() = 0;
  // Names in the peer's certificate, if it has one that a trusted authority signed; else empty.
  virtual std::vector<std::string> certificate_names() const { return {}; }

 protected:
  explicit PeerStream(int descriptor) : descriptor_(descriptor) {}
  const int descriptor_;
};

// `descriptor` is a non-blocking socket. The caller keeps ownership; it must outlive the stream.
std::unique_ptr<PeerStream> PlainStream(int descriptor);

// Creates TLS 1.2 or 1.3 streams, each with the certificates that `files` holds when it begins. A
// client certificate that the client CA did not sign fails the handshake. Not thread-safe.
class TlsStreams {
 public:
  enum class For : uint8_t {
    // If there is a client CA, clients may present a certificate: probes have none.
    kOperators,
    // gRPC: clients must speak HTTP/2, which they say by ALPN, and the ciphers that RFC 9113
    // allows. If there is a client CA, they must present a certificate.
    kCalls,
  };

  TlsStreams(std::shared_ptr<const TlsFiles> files, For use);

  // Returns null if OpenSSL has no memory or cannot use the certificate.
  std::unique_ptr<PeerStream> Begin(int descriptor);

 private:
  const std::shared_ptr<const TlsFiles> files_;
  const For use_;
  std::shared_ptr<const TlsFiles::Pems> made_of_;  // the files that context_ was made from
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_PEER_STREAM_H_

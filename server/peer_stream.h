#ifndef ANNULUS_SERVER_PEER_STREAM_H_
#define ANNULUS_SERVER_PEER_STREAM_H_

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/tls_credentials.h"

namespace annulus {

// The bytes that one accepted connection carries, plain or through TLS. Never waits for the peer.
// Not thread-safe.
class PeerStream {
 public:
  enum class Outcome : uint8_t { kMoved, kWaitToRead, kWaitToWrite, kEnded };
  struct Result {
    Outcome outcome;
    size_t bytes = 0;  // moved; > 0 exactly for kMoved
  };

  virtual ~PeerStream() = default;
  // The peer ended its side, broke the connection or spoke no TLS: kEnded.
  virtual Result Read(void* buffer, size_t size) = 0;
  virtual Result Write(const void* bytes, size_t size) = 0;
  // Tells the peer that nothing more is written.
  virtual void EndWriting() = 0;
  // Names in the certificate of a trusted signer that the peer showed; none without one.
  virtual std::vector<std::string> certificate_names() const { return {}; }
};

// `descriptor` is a non-blocking socket, which stays the caller's and must outlive the stream.
std::unique_ptr<PeerStream> PlainStream(int descriptor);

// Makes streams through TLS 1.2 or 1.3 with what `files` holds when each begins. With certificates
// of signers a client may show one that they signed; one of others ends its handshake. The
// handshake is part of the first reads. SIGPIPE must be ignored. Not thread-safe.
class TlsStreams {
 public:
  explicit TlsStreams(std::shared_ptr<const TlsFiles> files);

  // Null if the library has no memory or cannot use the certificate.
  std::unique_ptr<PeerStream> Begin(int descriptor);

 private:
  const std::shared_ptr<const TlsFiles> files_;
  std::shared_ptr<const TlsFiles::Pems> made_of_;  // what context_ was made of
  std::shared_ptr<SSL_CTX> context_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_PEER_STREAM_H_

#include "server/net/peer_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/base/certificate_names.h"
#include "server/base/pem.h"

namespace annulus::server {
namespace {

using Outcome = PeerStream::Outcome;

// Whether to try again later: the call would have blocked, or was interrupted.
bool IsTransient(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

class Plain final : public PeerStream {
 public:
  explicit Plain(int descriptor) : PeerStream(descriptor) {}

  Result Read(void* buffer, size_t size) override {
    return ToResult(recv(descriptor_, buffer, size, 0), Outcome::kWaitToRead);
  }
  Result Write(const void* bytes, size_t size) override {
    return ToResult(send(descriptor_, bytes, size, MSG_NOSIGNAL), Outcome::kWaitToWrite);
  }
  void EndWriting() override { shutdown(descriptor_, SHUT_WR); }

 private:
  static Result ToResult(ssize_t size, Outcome wait) {
    if (size > 0) return {Outcome::kMoved, static_cast<size_t>(size)};
    return {size < 0 && IsTransient(errno) ? wait : Outcome::kEnded};
  }
};

// The descriptor of a TLS stream. OpenSSL goes on within one call for as long as it finds records
// without data (renegotiations that it refuses, new keys), so a client that sends them fast enough
// would keep a thread that serves others: a call may read only so often, then it has to wait.
class Socket {
 public:
  // A record takes two reads: one for its header, one for the rest.
  static constexpr int kReadsOfACall = 8;
  // Calls in a row that end so, before the stream fails.
  static constexpr int kMostCallsWithoutData = 128;

  explicit Socket(int descriptor) : descriptor_(descriptor) {}

  void BeginCall() { reads_left_ = kReadsOfACall; }
  // Whether the client sends records without data, and no end of them.
  bool IsFlood(bool moved) {
    calls_without_data_ = !moved && reads_left_ == 0 ? calls_without_data_ + 1 : 0;
    return calls_without_data_ > kMostCallsWithoutData;
  }
  ssize_t Read(char* buffer, size_t size) {
    if (reads_left_ == 0) {
      errno = EAGAIN;
      return -1;
    }
    --reads_left_;
    return recv(descriptor_, buffer, size, 0);
  }
  ssize_t Write(const char* bytes, size_t size) const {
    return send(descriptor_, bytes, size, MSG_NOSIGNAL);
  }

 private:
  const int descriptor_;
  int reads_left_ = kReadsOfACall;
  int calls_without_data_ = 0;
};

Socket& SocketOf(BIO* bio) { return *static_cast<Socket*>(BIO_get_data(bio)); }

using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;

// A descriptor for OpenSSL. Its own kind writes in a way that ends a process which does not ignore
// SIGPIPE.
int ReadSocket(BIO* bio, char* buffer, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = SocketOf(bio).Read(buffer, static_cast<size_t>(size));
  if (got < 0 && IsTransient(errno)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

int WriteSocket(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = SocketOf(bio).Write(bytes, static_cast<size_t>(size));
  if (sent < 0 && IsTransient(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

long ControlSocket(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

// Null if OpenSSL has no memory.
const BIO_METHOD* SocketMethod() {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "annulus");
    if (made == nullptr) return made;
    BIO_meth_set_read(made, &ReadSocket);
    BIO_meth_set_write(made, &WriteSocket);
    BIO_meth_set_ctrl(made, &ControlSocket);
    return made;
  }();
  return method;
}

// Gives the session its socket, which the caller keeps. Returns false without memory.
bool UseSocket(SSL* session, Socket& socket) {
  const BIO_METHOD* const method = SocketMethod();
  BIO* const bio = method == nullptr ? nullptr : BIO_new(method);
  if (bio == nullptr) return false;
  BIO_set_data(bio, &socket);
  BIO_set_init(bio, 1);
  SSL_set_bio(session, bio, bio);
  return true;
}

class Tls final : public PeerStream {
 public:
  Tls(int descriptor, Session session, bool needs_http2)
      : PeerStream(descriptor),
        socket_(descriptor),
        session_(std::move(session)),
        needs_http2_(needs_http2) {}

  // Returns false without memory.
  bool Connect() { return UseSocket(session_.get(), socket_); }

  Outcome Handshake() override {
    if (IsInVain()) return Outcome::kEnded;
    socket_.BeginCall();
    const int good = SSL_do_handshake(session_.get());
    if (good < 1 && SSL_get_error(session_.get(), good) == SSL_ERROR_SSL) failure_ = Reason();
    const Outcome outcome = ToResult(good, 1).outcome;
    if (outcome != Outcome::kMoved || !needs_http2_ || SpeaksHttp2()) return outcome;
    failure_ = "it does not offer HTTP/2 (ALPN \"h2\")";
    return Outcome::kEnded;
  }
  std::string failure() const override { return failure_; }
  bool in_handshake() const override { return SSL_is_init_finished(session_.get()) != 1; }
  Result Read(void* buffer, size_t size) override {
    if (ended_) return ReadPast(buffer, size);
    if (IsInVain()) return {Outcome::kEnded};
    socket_.BeginCall();
    size_t moved = 0;
    const int good = SSL_read_ex(session_.get(), buffer, size, &moved);
    return ToResult(good, moved);
  }
  Result Write(const void* bytes, size_t size) override {
    socket_.BeginCall();
    size_t moved = 0;
    const int good = SSL_write_ex(session_.get(), bytes, size, &moved);
    return ToResult(good, moved);
  }
  void EndWriting() override {
    ended_ = true;
    SSL_shutdown(session_.get());  // sends close_notify if there is room; nothing depends on it
    ERR_clear_error();
    shutdown(descriptor_, SHUT_WR);
  }
  std::vector<std::string> certificate_names() const override {
    X509* const certificate = SSL_get0_peer_certificate(session_.get());
    if (certificate == nullptr || SSL_get_verify_result(session_.get()) != X509_V_OK) return {};
    return NamesIn(certificate);
  }

 private:
  // Why OpenSSL ends the handshake.
  std::string Reason() const {
    const long verdict = SSL_get_verify_result(session_.get());
    if (verdict != X509_V_OK) {
      return absl::StrCat("its certificate: ", X509_verify_cert_error_string(verdict));
    }
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    return reason == nullptr ? "an error without a name" : reason;
  }
  // Whether the client has left before the handshake is complete. A signature for it takes long,
  // and would delay others.
  bool IsInVain() const { return in_handshake() && peer_has_left(); }
  Result ToResult(int good, size_t moved) {
    const bool floods = socket_.IsFlood(good == 1);
    if (good == 1) return {Outcome::kMoved, moved};
    const int error = SSL_get_error(session_.get(), good);
    ERR_clear_error();
    if (floods) return {Outcome::kEnded};
    if (error == SSL_ERROR_WANT_READ) return {Outcome::kWaitToRead};
    if (error == SSL_ERROR_WANT_WRITE) return {Outcome::kWaitToWrite};
    return {Outcome::kEnded};
  }
  // Clients without ALPN have not been asked.
  bool SpeaksHttp2() const {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(session_.get(), &name, &size);
    return absl::string_view(reinterpret_cast<const char*>(name), size) == "h2";
  }
  // After EndWriting: discards further bytes without decrypting them.
  Result ReadPast(void* buffer, size_t size) { return Plain(descriptor_).Read(buffer, size); }

  Socket socket_;
  const Session session_;
  const bool needs_http2_;
  bool ended_ = false;  // EndWriting was called
  std::string failure_;
};

// Chooses HTTP/2, or fails the handshake.
int ChooseHttp2(SSL*, const unsigned char** chosen, unsigned char* size,
                const unsigned char* offered, unsigned offered_size, void*) {
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, size, kHttp2, sizeof(kHttp2), offered, offered_size) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

// The first certificate is the server's; the others are the chain to an authority that clients
// trust.
bool UseCertificates(SSL_CTX* context, const std::string& pems) {
  const Bio file = OpenPem(pems);
  const Certificate own = NextCertificate(file.get());
  if (own == nullptr || SSL_CTX_use_certificate(context, own.get()) != 1) return false;
  while (const Certificate next = NextCertificate(file.get())) {
    if (SSL_CTX_add1_chain_cert(context, next.get()) != 1) return false;
  }
  return true;
}

// Also tells clients the names of the signers, by which those with several certificates choose.
bool TrustSigners(SSL_CTX* context, const std::string& pems, TlsStreams::For use) {
  const Bio file = OpenPem(pems);
  while (const Certificate signer = NextCertificate(file.get())) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), signer.get()) != 1 ||
        SSL_CTX_add_client_CA(context, signer.get()) != 1) {
      return false;
    }
  }
  // A signer is trusted by itself, also if it is an intermediate authority whose own signer the
  // file does not have.
  X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN);
  const bool required = use == TlsStreams::For::kCalls;
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | (required ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0),
                     nullptr);
  return true;
}

// Returns null if OpenSSL cannot use the certificates or the key.
std::shared_ptr<SSL_CTX> MakeContext(const TlsFiles::Pems& pems, TlsStreams::For use) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (context == nullptr) return nullptr;
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // No session resumption, so nothing needs to be kept: operators send one request on a connection,
  // and gRPC clients keep theirs for long.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_RELEASE_BUFFERS |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  bool usable = true;
  if (use == TlsStreams::For::kCalls) {
    SSL_CTX_set_alpn_select_cb(context.get(), &ChooseHttp2, nullptr);
    usable = SSL_CTX_set_cipher_list(context.get(), "ECDHE+AESGCM") == 1;  // of TLS 1.2
  }
  const PrivateKey key = ReadPrivateKey(pems.key);
  usable = usable && UseCertificates(context.get(), pems.certificate) && key != nullptr &&
           SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1 &&
           (pems.client_ca.empty() || TrustSigners(context.get(), pems.client_ca, use));
  ERR_clear_error();
  return usable ? context : nullptr;
}

}  // namespace

bool PeerHasLeft(int descriptor) {
  pollfd events{descriptor, POLLRDHUP, 0};
  return poll(&events, 1, 0) > 0;
}

std::unique_ptr<PeerStream> PlainStream(int descriptor) {
  return std::make_unique<Plain>(descriptor);
}

TlsStreams::TlsStreams(std::shared_ptr<const TlsFiles> files, For use)
    : files_(std::move(files)), use_(use) {}

std::unique_ptr<PeerStream> TlsStreams::Begin(int descriptor) {
  std::shared_ptr<const TlsFiles::Pems> now = files_->current();
  if (now != made_of_) {
    context_ = MakeContext(*now, use_);
    made_of_ = std::move(now);
  }
  if (context_ == nullptr) return nullptr;
  Session session(SSL_new(context_.get()), &SSL_free);
  if (session == nullptr) return nullptr;
  SSL_set_accept_state(session.get());
  auto stream = std::make_unique<Tls>(descriptor, std::move(session), use_ == For::kCalls);
  if (!stream->Connect()) return nullptr;
  return stream;
}

}  // namespace annulus::server

#ifndef ANNULUS_TESTS_SERVER_HTTP_HTTP_CLIENT_H_
#define ANNULUS_TESTS_SERVER_HTTP_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"

namespace annulus::server {

// One answer of an HTTP server.
struct HttpReceived {
  int status = 0;  // 0: no answer
  std::string head;
  std::string body;       // without the frames of chunks
  bool complete = false;  // the length, or the last chunk, has come
};

// A plain connection to 127.0.0.1, from `source`, that sends what a test likes. Nothing blocks for
// longer than 20 s.
class HttpPeer {
 public:
  explicit HttpPeer(int port, const char* source = "127.0.0.1")
      : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    inet_pton(AF_INET, source, &own.sin_addr);
    bind(descriptor_, reinterpret_cast<const sockaddr*>(&own), sizeof(own));
    if (!server::Connect(absl::StrCat("127.0.0.1:", port), descriptor_)) Leave();
    const timeval limit{20, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  ~HttpPeer() { Leave(); }
  HttpPeer(const HttpPeer&) = delete;
  HttpPeer& operator=(const HttpPeer&) = delete;

  void Leave() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }
  // Ends what another thread sends or reads.
  void EndBoth() { shutdown(descriptor_, SHUT_RDWR); }
  void LimitReceiving(int bytes) {
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
  }
  bool Send(const std::string& bytes) {
    return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Reads until `text` has come. False if the connection ends before.
  bool ReadUntil(const std::string& text) {
    while (received_.find(text) == std::string::npos) {
      if (!ReadSome()) return false;
    }
    return true;
  }
  // Whether something has come, or the connection has ended.
  bool CanRead() const {
    pollfd descriptor{descriptor_, POLLIN, 0};
    return poll(&descriptor, 1, 0) > 0;
  }
  const std::string& received() const { return received_; }
  // Whether the server closes the connection; drops what comes before that.
  bool ReadToEnd() {
    while (ReadSome()) {
    }
    return ended_;
  }

  // Reads one answer, and leaves what follows it.
  HttpReceived ReadAnswer() {
    HttpReceived answer;
    if (!ReadUntil("\r\n\r\n")) return answer;
    answer.head = Cut(received_.find("\r\n\r\n") + 4);
    if (!absl::SimpleAtoi(answer.head.substr(9, 3), &answer.status)) return answer;
    size_t size = 0;
    const size_t length = answer.head.find("Content-Length: ");
    if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      ReadChunks(answer);
    } else if (length != std::string::npos) {
      size = std::stoul(answer.head.substr(length + 16));
      while (received_.size() < size && ReadSome()) {
      }
      answer.complete = received_.size() >= size;
      answer.body = Cut(size);
    } else {
      answer.complete = answer.status == 100 || answer.status == 204;
    }
    return answer;
  }
  HttpReceived Ask(const std::string& bytes) {
    Send(bytes);
    return ReadAnswer();
  }

 private:
  std::string Cut(size_t size) {
    std::string cut = received_.substr(0, size);
    received_.erase(0, size);
    return cut;
  }
  bool ReadSome() {
    char buffer[16384];
    const ssize_t size = recv(descriptor_, buffer, sizeof(buffer), 0);
    if (size == 0 || (size < 0 && errno == ECONNRESET)) ended_ = true;
    if (size <= 0) return false;
    received_.append(buffer, static_cast<size_t>(size));
    return true;
  }
  void ReadChunks(HttpReceived& answer) {
    for (;;) {
      if (!ReadUntil("\r\n")) return;
      const size_t size = std::stoul(Cut(received_.find("\r\n") + 2), nullptr, 16);
      while (received_.size() < size + 2) {
        if (!ReadSome()) return;
      }
      answer.body += Cut(size + 2).substr(0, size);
      if (size > 0) continue;
      answer.complete = true;
      return;
    }
  }

  int descriptor_;
  bool ended_ = false;
  std::string received_;
};

// A POST of JSON, as clients send it.
inline std::string PostJson(const std::string& path, const std::string& body,
                            const std::string& headers = "") {
  return absl::StrCat("POST ", path, " HTTP/1.1\r\nHost: localhost\r\n", headers,
                      "Content-Type: application/json\r\nContent-Length: ", body.size(), "\r\n\r\n",
                      body);
}

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP_HTTP_CLIENT_H_

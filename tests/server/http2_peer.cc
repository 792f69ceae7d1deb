#include "tests/server/http2_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kSendLimit{5000};
constexpr size_t kFrameHeader = 9;
constexpr size_t kInitialWindowSize = 4;  // the setting's number

void AppendNumber(uint32_t value, int bytes, std::string& out) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint32_t NumberAt(absl::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = at; i < at + size; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

int MillisecondsUntil(steady_clock::time_point until) {
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
  return static_cast<int>(std::max<milliseconds::rep>(left.count(), 0));
}

// A literal: its length in 7 bits or more, then its bytes.
void AppendLiteral(absl::string_view text, std::string& out) {
  constexpr size_t kFirst = 127;
  if (text.size() < kFirst) {
    out.push_back(static_cast<char>(text.size()));
  } else {
    out.push_back(static_cast<char>(kFirst));
    size_t rest = text.size() - kFirst;
    for (; rest >= 128; rest /= 128) out.push_back(static_cast<char>(rest % 128 | 128));
    out.push_back(static_cast<char>(rest));
  }
  absl::StrAppend(&out, text);
}

}  // namespace

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  std::string frame;
  AppendNumber(static_cast<uint32_t>(payload.size()), 3, frame);
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  AppendNumber(stream, 4, frame);
  absl::StrAppend(&frame, payload);
  return frame;
}

std::string HeaderField(absl::string_view name, absl::string_view value) {
  std::string field(1, '\0');  // a literal that enters no table
  AppendLiteral(name, field);
  AppendLiteral(value, field);
  return field;
}

std::string CallHeaders(absl::string_view method) {
  return absl::StrCat(HeaderField(":method", "POST"), HeaderField(":scheme", "http"),
                      HeaderField(":path", method), HeaderField(":authority", "localhost"),
                      HeaderField("te", "trailers"),
                      HeaderField("content-type", "application/grpc"));
}

std::string GrpcMessage(absl::string_view message) {
  return GrpcMessage(message, 0, static_cast<uint32_t>(message.size()));
}

std::string GrpcMessage(absl::string_view message, uint8_t compressed, uint32_t length) {
  std::string bytes(1, static_cast<char>(compressed));
  AppendNumber(length, 4, bytes);
  absl::StrAppend(&bytes, message);
  return bytes;
}

std::string CallFrames(uint32_t stream, absl::string_view method, absl::string_view message) {
  return absl::StrCat(Frame(FrameType::kHeaders, kEndHeaders, stream, CallHeaders(method)),
                      Frame(FrameType::kData, kEndStream, stream, GrpcMessage(message)));
}

Http2Peer::Http2Peer(const std::string& address, std::optional<uint32_t> window)
    : descriptor_(Connect(address)) {
  fcntl(descriptor_, F_SETFL, O_NONBLOCK);
  if (!window) return;
  std::string setting;
  AppendNumber(kInitialWindowSize, 2, setting);
  AppendNumber(*window, 4, setting);
  Send(absl::StrCat(kHttp2Preface, Frame(FrameType::kSettings, 0, 0, setting)));
}

Http2Peer::~Http2Peer() {
  if (descriptor_ >= 0) close(descriptor_);
}

bool Http2Peer::Send(absl::string_view bytes) {
  const auto until = steady_clock::now() + kSendLimit;
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
      continue;
    }
    if (errno != EAGAIN) return false;
    pollfd socket{descriptor_, POLLOUT, 0};
    if (poll(&socket, 1, MillisecondsUntil(until)) <= 0) return false;
  }
  return true;
}

bool Http2Peer::WaitForFrame(FrameType type, uint32_t stream, milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  while (!TakeFrame(type, stream)) {
    if (ReadSome(until) != Reading::kSome) return false;
  }
  return true;
}

bool Http2Peer::WaitForClose(milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  Reading reading;
  do {
    reading = ReadSome(until);
  } while (reading == Reading::kSome);
  return reading == Reading::kClosed;
}

void Http2Peer::Reset() {
  const linger at_once{1, 0};
  setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(descriptor_);
  descriptor_ = -1;
}

Http2Peer::Reading Http2Peer::ReadSome(steady_clock::time_point until) {
  pollfd socket{descriptor_, POLLIN, 0};
  if (poll(&socket, 1, MillisecondsUntil(until)) <= 0) return Reading::kNothing;
  char buffer[16'384];
  const ssize_t size = recv(descriptor_, buffer, sizeof(buffer), 0);
  if (size <= 0) return Reading::kClosed;
  received_.append(buffer, static_cast<size_t>(size));
  return Reading::kSome;
}

// Drops whole frames up to and with the one that is looked for; false when it is not there.
bool Http2Peer::TakeFrame(FrameType type, uint32_t stream) {
  while (received_.size() >= kFrameHeader) {
    const size_t size = kFrameHeader + NumberAt(received_, 0, 3);
    if (received_.size() < size) return false;
    const bool found = received_[3] == static_cast<char>(type) &&
                       (NumberAt(received_, 5, 4) & 0x7fff'ffff) == stream;
    received_.erase(0, size);
    if (found) return true;
  }
  return false;
}

}  // namespace annulus::server

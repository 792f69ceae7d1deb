#include "server/net/connection_meter.h"

#include <algorithm>
#include <utility>

namespace annulus::server {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kReset = 3;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kPadded = 8;
// Far more than gRPC allows. It refuses the excess, but its refusals take a moment to arrive here.
constexpr size_t kMostOpenStreams = 16'384;

// Moves bytes from the front of `bytes` into `array`, of which the first `have` are filled.
template <size_t kSize>
void Fill(std::array<uint8_t, kSize>& array, size_t& have, absl::string_view& bytes) {
  for (; have < kSize && !bytes.empty(); bytes.remove_prefix(1)) {
    array[have++] = static_cast<uint8_t>(bytes.front());
  }
}

}  // namespace

uint32_t FrameReader::stream() const {
  return (uint32_t{header_[5]} << 24 | uint32_t{header_[6]} << 16 | uint32_t{header_[7]} << 8 |
          uint32_t{header_[8]}) &
         0x7fff'ffff;
}

FrameReader::Piece FrameReader::Next(absl::string_view& bytes, absl::string_view& payload) {
  if (bytes.empty()) return Piece::kNone;
  if (left_ > 0) {
    payload = bytes.substr(0, left_);
    left_ -= payload.size();
    bytes.remove_prefix(payload.size());
    return Piece::kPayload;
  }
  Fill(header_, header_bytes_, bytes);
  if (header_bytes_ < header_.size()) return Piece::kNone;
  header_bytes_ = 0;
  size_ = left_ = size_t{header_[0]} << 16 | size_t{header_[1]} << 8 | size_t{header_[2]};
  return Piece::kHeader;
}

bool ConnectionMeter::TakeFromClient(absl::string_view bytes, SteadyTime now) {
  if (preface_ < kPreface.size()) {
    const size_t size = std::min(kPreface.size() - preface_, bytes.size());
    if (bytes.substr(0, size) != kPreface.substr(preface_, size)) return false;
    preface_ += size;
    bytes.remove_prefix(size);
  }
  absl::string_view payload;
  FrameReader::Piece piece;
  while ((piece = from_client_.Next(bytes, payload)) != FrameReader::Piece::kNone) {
    if (piece == FrameReader::Piece::kHeader && !TakeClientFrame(now)) return false;
    if (from_client_.type() != kData) continue;
    const auto stream = open_.find(from_client_.stream());
    if (stream == open_.end()) continue;  // gRPC has ended this stream
    if (piece == FrameReader::Piece::kPayload) TakeData(stream->second, payload);
    if (from_client_.complete() && (from_client_.flags() & kEndStream) != 0) {
      EndMessages(stream->second);
    }
  }
  return true;
}

bool ConnectionMeter::TakeClientFrame(SteadyTime now) {
  const uint8_t type = from_client_.type();
  // gRPC clients never pad, and gRPC's server rejects padding.
  if (type == kData) return (from_client_.flags() & kPadded) == 0;
  if (type == kReset) Forget(from_client_.stream());
  if (type != kHeaders && type != kContinuation) return true;
  if (type == kHeaders) {
    block_bytes_ = 0;
    if (from_client_.stream() > newest_stream_) OpenStream(now);
  }
  const size_t bytes = 9 + from_client_.size();
  block_bytes_ += bytes;
  if (block_bytes_ > most_block_bytes_) return false;
  KeepHeaders(bytes);
  if ((from_client_.flags() & kEndHeaders) != 0) block_bytes_ = 0;
  return open_.size() <= kMostOpenStreams;
}

void ConnectionMeter::OpenStream(SteadyTime now) {
  newest_stream_ = from_client_.stream();
  Stream& stream = open_[newest_stream_];
  stream.since = now;
  stream.kept = kStreamBytes;
  held_ += kStreamBytes;
  ++awaiting_;
  // gRPC answers a call without a message at once, so there is nothing to wait for.
  if ((from_client_.flags() & kEndStream) != 0) EndMessages(stream);
}

// Counts the headers of the current block, until its call ends.
void ConnectionMeter::KeepHeaders(size_t bytes) {
  const auto stream = open_.find(from_client_.stream());
  if (stream == open_.end()) return;
  size_t& kept = stream->second.kept;
  const size_t more = std::min(bytes * kHeaderFactor, kStreamBytes + kMostHeadersKept - kept);
  kept += more;
  held_ += more;
}

void ConnectionMeter::TakeData(Stream& stream, absl::string_view data) {
  Message& message = stream.message;
  stream.came += data.size();
  while (!data.empty()) {
    size_t size = data.size();
    if (message.left == 0) {
      Fill(message.prefix, message.prefix_bytes, data);
      size -= data.size();
      if (message.prefix_bytes == message.prefix.size()) {
        for (size_t i = 1; i < message.prefix.size(); ++i) {
          message.left = message.left << 8 | message.prefix[i];
        }
      }
    } else {
      size = std::min(message.left, size);
      message.left -= size;
      data.remove_prefix(size);
    }
    message.held += size;
    held_ += size;
    if (message.left > 0 || message.prefix_bytes < message.prefix.size()) continue;
    Release(message);
    if (std::exchange(stream.awaits_first, false)) --awaiting_;
  }
}

void ConnectionMeter::TakeFromServer(absl::string_view bytes) {
  absl::string_view payload;
  FrameReader::Piece piece;
  while ((piece = from_server_.Next(bytes, payload)) != FrameReader::Piece::kNone) {
    if (piece != FrameReader::Piece::kHeader) continue;
    const bool last = from_server_.type() <= kHeaders && (from_server_.flags() & kEndStream) != 0;
    if (last || from_server_.type() == kReset) Forget(from_server_.stream());
  }
}

// Stops counting a message that was delivered to its call, or never will be.
void ConnectionMeter::Release(Message& message) {
  held_ -= message.held;
  message = Message();
}

// Called when the client sends nothing more on the stream.
void ConnectionMeter::EndMessages(Stream& stream) {
  Release(stream.message);
  if (std::exchange(stream.awaits_first, false)) --awaiting_;
}

void ConnectionMeter::Forget(uint32_t stream) {
  const auto found = open_.find(stream);
  if (found == open_.end()) return;
  EndMessages(found->second);
  held_ -= found->second.kept;
  open_.erase(found);
}

bool ConnectionMeter::Trickles(SteadyTime now, std::chrono::milliseconds limit, bool held_up) {
  if (awaiting_ == 0) return false;
  const double least = kLeastBytesPerSecond * std::chrono::duration<double>(limit).count();
  for (auto& [number, stream] : open_) {
    if (!stream.awaits_first || (!held_up && now - stream.since < limit)) continue;
    if (!held_up && static_cast<double>(stream.came) < least) return true;
    stream.since = now;
    stream.came = 0;
  }
  return false;
}

}  // namespace annulus::server

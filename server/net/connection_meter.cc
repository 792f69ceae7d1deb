#include "server/net/connection_meter.h"

#include <algorithm>
#include <utility>

namespace annulus::server {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

}  // namespace

bool ConnectionMeter::TakePreface(absl::string_view& bytes) {
  const size_t size = std::min(kPreface.size() - preface_, bytes.size());
  if (bytes.substr(0, size) != kPreface.substr(preface_, size)) return Refuse(CutOff::kHeaders);
  preface_ += size;
  bytes.remove_prefix(size);
  return true;
}

std::optional<size_t> ConnectionMeter::TakeFromClient(absl::string_view bytes, SteadyTime now) {
  const size_t size = bytes.size();
  if (!TakePreface(bytes)) return std::nullopt;
  absl::string_view payload;
  for (;;) {
    FrameReader::Piece piece = FrameReader::Piece::kHeader;
    if (!std::exchange(waits_, false)) {
      piece = from_client_.Next(bytes, payload);
    } else {
      bytes.remove_prefix(1);
    }
    if (piece == FrameReader::Piece::kNone) return size;
    if (piece == FrameReader::Piece::kHeader) {
      if (Opens() && !pace_.Begin(now)) {
        waits_ = true;
        return size - bytes.size() - 1;
      }
      if (!TakeClientFrame(now)) return std::nullopt;
    }
    if (from_client_.type() != http2::kData) continue;
    const auto stream = open_.find(from_client_.stream());
    if (stream == open_.end()) continue;  // gRPC has ended this stream
    if (piece == FrameReader::Piece::kPayload) TakeData(stream->second, payload);
    if (from_client_.complete() && from_client_.has(http2::kEndStream)) {
      EndMessages(stream->second);
    }
  }
}

// Whether the frame begins a call.
bool ConnectionMeter::Opens() const {
  return from_client_.type() == http2::kHeaders && from_client_.stream() > newest_stream_;
}

bool ConnectionMeter::Refuse(CutOff why) {
  refusal_ = why;
  return false;
}

bool ConnectionMeter::TakeClientFrame(SteadyTime now) {
  const uint8_t type = from_client_.type();
  const bool opens = Opens();
  const ControlBudget::Call call = opens ? ControlBudget::Call::kNew
                                   : open_.contains(from_client_.stream())
                                       ? ControlBudget::Call::kOpen
                                       : ControlBudget::Call::kNone;
  if (!control_.TakeFromClient(from_client_, call, now)) return Refuse(CutOff::kFlood);
  // gRPC clients never pad, and gRPC's server rejects padding.
  if (type == http2::kData) {
    return !from_client_.has(http2::kPadded) || Refuse(CutOff::kHeaders);
  }
  if (type == http2::kReset) Forget(from_client_.stream());
  if (type != http2::kHeaders && type != http2::kContinuation) return true;
  if (type == http2::kHeaders) block_bytes_ = 0;
  if (opens) OpenStream(now);
  const size_t bytes = 9 + from_client_.size();
  block_bytes_ += bytes;
  if (block_bytes_ > most_block_bytes_) return Refuse(CutOff::kHeaders);
  KeepHeaders(bytes);
  if (from_client_.has(http2::kEndHeaders)) block_bytes_ = 0;
  return open_.size() <= kMostOpenStreams || Refuse(CutOff::kFlood);
}

void ConnectionMeter::OpenStream(SteadyTime now) {
  newest_stream_ = from_client_.stream();
  Stream& stream = open_[newest_stream_];
  stream.since = now;
  stream.kept = kStreamBytes;
  calls_ += kStreamBytes;
  ++awaiting_;
  // gRPC answers a call without a message at once, so there is nothing to wait for.
  if (from_client_.has(http2::kEndStream)) EndMessages(stream);
}

// Counts the headers of the current block, until its call ends.
void ConnectionMeter::KeepHeaders(size_t bytes) {
  const auto stream = open_.find(from_client_.stream());
  if (stream == open_.end()) return;
  size_t& kept = stream->second.kept;
  const size_t more = std::min(bytes * kHeaderFactor, kStreamBytes + kMostHeadersKept - kept);
  kept += more;
  calls_ += more;
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
    messages_ += size;
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
    control_.TakeFromServer(from_server_);
    if (from_server_.type() == http2::kReset) ++resets_;
    const bool last = from_server_.type() <= http2::kHeaders && from_server_.has(http2::kEndStream);
    if (!last && from_server_.type() != http2::kReset) continue;
    if (open_.contains(from_server_.stream())) pace_.Answered();
    Forget(from_server_.stream());
  }
}

// Stops counting a message that was delivered to its call, or never will be.
void ConnectionMeter::Release(Message& message) {
  messages_ -= message.held;
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
  calls_ -= found->second.kept;
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

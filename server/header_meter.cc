#include "server/header_meter.h"

#include <algorithm>

namespace annulus {
namespace {

constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kEndHeaders = 4;

}  // namespace

bool HeaderMeter::Take(absl::string_view bytes) {
  if (preface_ < kPreface.size()) {
    const size_t size = std::min(kPreface.size() - preface_, bytes.size());
    if (bytes.substr(0, size) != kPreface.substr(preface_, size)) return false;
    preface_ += size;
    bytes.remove_prefix(size);
  }
  while (!bytes.empty()) {
    if (payload_left_ > 0) {
      const size_t size = std::min(payload_left_, bytes.size());
      payload_left_ -= size;
      bytes.remove_prefix(size);
      continue;
    }
    const size_t size = std::min(frame_.size() - frame_bytes_, bytes.size());
    std::copy_n(bytes.begin(), size, frame_.begin() + static_cast<std::ptrdiff_t>(frame_bytes_));
    frame_bytes_ += size;
    bytes.remove_prefix(size);
    if (frame_bytes_ == frame_.size() && !TakeFrameHeader()) return false;
  }
  return true;
}

bool HeaderMeter::TakeFrameHeader() {
  frame_bytes_ = 0;
  payload_left_ = size_t{frame_[0]} << 16 | size_t{frame_[1]} << 8 | size_t{frame_[2]};
  const uint8_t type = frame_[3];
  if (type != kHeaders && type != kContinuation) return true;
  if (type == kHeaders) block_bytes_ = 0;
  block_bytes_ += frame_.size() + payload_left_;
  if (block_bytes_ > most_block_bytes_) return false;
  if ((frame_[4] & kEndHeaders) != 0) block_bytes_ = 0;
  return true;
}

}  // namespace annulus

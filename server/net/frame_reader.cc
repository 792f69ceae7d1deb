#include "server/net/frame_reader.h"

namespace annulus::server {

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

}  // namespace annulus::server

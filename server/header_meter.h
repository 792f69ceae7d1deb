#ifndef ANNULUS_SERVER_HEADER_METER_H_
#define ANNULUS_SERVER_HEADER_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus {

// Counts the bytes of header blocks in what an HTTP/2 client sends (RFC 9113): a HEADERS frame and
// the CONTINUATION frames that belong to it, their frame headers included. Reads the nine bytes in
// front of each frame and passes over the rest.
class HeaderMeter {
 public:
  explicit HeaderMeter(size_t most_block_bytes) : most_block_bytes_(most_block_bytes) {}

  // Takes the next bytes, cut anywhere. False: a header block is longer than the limit, or the
  // first bytes are not those of HTTP/2. Nothing may be taken after that.
  bool Take(absl::string_view bytes);

 private:
  bool TakeFrameHeader();

  const size_t most_block_bytes_;
  size_t preface_ = 0;  // bytes of it that have come
  std::array<uint8_t, 9> frame_{};
  size_t frame_bytes_ = 0;   // of frame_ that have come
  size_t payload_left_ = 0;  // of the frame under way
  size_t block_bytes_ = 0;   // of the header block under way
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_HEADER_METER_H_

#ifndef ANNULUS_ENGINE_TIERS_PAGE_LANE_H_
#define ANNULUS_ENGINE_TIERS_PAGE_LANE_H_

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// Where a page lies in its rank's memory: [layer] its piece.
using PagePieces = std::vector<std::span<std::byte>>;

// Copies pages between the ranks' memory and a buffer of one page in the host's memory. For devices
// with memory of their own, the buffer is pinned, and the lane has a stream of its own on each
// device, so no rank's stream waits for a copy. Adjacent pieces are copied by one call.
//
// A copy waits only for the lane's earlier copies: the caller must make sure that all work that
// writes the page has ended. A page that was copied in may be used once the call has returned.
//
// One thread at a time.
class PageLane {
 public:
  // `devices`: [rank] the backend of the rank's device, at least one; they must outlive the lane.
  // `page_bytes`: the sum of a page's pieces. Errors of Backend::AllocateHost and CreateStream.
  static absl::StatusOr<std::unique_ptr<PageLane>> Open(std::span<Backend* const> devices,
                                                        size_t page_bytes);

  PageLane(const PageLane&) = delete;
  PageLane& operator=(const PageLane&) = delete;

  // One page: its pieces without gaps.
  std::span<std::byte> buffer() { return {buffer_.data(), buffer_.size()}; }

  // Whether the host can access the ranks' memory. Copies are then plain copies in memory, and
  // cannot fail.
  bool immediate() const { return devices_.empty(); }

  // CopyOut copies the pieces to the buffer, CopyIn copies the buffer to the pieces. Both block
  // until the copy has ended, even if it fails: for as long as Stream::Synchronize blocks. After an
  // error, the contents of the destination are undefined. Errors of the device; RESOURCE_EXHAUSTED
  // if memory runs out.
  absl::Status CopyOut(int rank, const PagePieces& pieces);
  absl::Status CopyIn(int rank, const PagePieces& pieces);

 private:
  explicit PageLane(DeviceBuffer buffer) : buffer_(std::move(buffer)) {}

  // Calls `copy(piece, buffer)` for each run of pieces without a gap, and waits for the copies.
  template <typename Copy>
  absl::Status CopyAll(int rank, const PagePieces& pieces, const Copy& copy);

  struct Device {
    Backend* backend = nullptr;
    Stream* stream = nullptr;
  };
  DeviceBuffer buffer_;
  std::map<Backend*, std::unique_ptr<Stream>> streams_;
  std::vector<Device> devices_;  // [rank]; empty: the host can access the ranks' memory
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_LANE_H_

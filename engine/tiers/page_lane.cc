#include "engine/tiers/page_lane.h"

#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<PageLane>> PageLane::Open(std::span<Backend* const> devices,
                                                         size_t page_bytes) {
  ANNULUS_CHECK(!devices.empty()) << "pages of no rank";
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer, devices[0]->AllocateHost(page_bytes));
  std::unique_ptr<PageLane> lane(new PageLane(std::move(buffer)));
  if (devices[0]->capabilities().host_accessible) return lane;
  for (Backend* const device : devices) {
    std::unique_ptr<Stream>& stream = lane->streams_[device];
    if (stream == nullptr) {
      ANNULUS_ASSIGN_OR_RETURN(stream, device->CreateStream(/*threads=*/1));
    }
    lane->devices_.push_back({device, stream.get()});
  }
  return lane;
}

template <typename Copy>
absl::Status PageLane::CopyAll(int rank, const PagePieces& pieces, const Copy& copy) {
  const auto copy_runs = [&]() -> absl::Status {
    size_t offset = 0;
    for (size_t first = 0; first < pieces.size();) {
      std::span<std::byte> run = pieces[first++];
      while (first < pieces.size() && pieces[first].data() == run.data() + run.size()) {
        run = {run.data(), run.size() + pieces[first++].size()};
      }
      ANNULUS_CHECK(offset + run.size() <= buffer_.size()) << run.size();
      ANNULUS_RETURN_IF_ERROR(copy(run, buffer_.data() + offset));
      offset += run.size();
    }
    return absl::OkStatus();
  };
  if (immediate()) return copy_runs();
  const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
  absl::Status status = Guarded(copy_runs, no_memory);
  // Earlier runs may be under way even if a later one could not be enqueued.
  status.Update(devices_[rank].stream->Synchronize());
  return status;
}

absl::Status PageLane::CopyOut(int rank, const PagePieces& pieces) {
  return CopyAll(rank, pieces, [&](std::span<std::byte> run, std::byte* buffer) -> absl::Status {
    if (!immediate()) {
      const Device& device = devices_[rank];
      return device.backend->Copy(*device.stream, buffer, run.data(), run.size());
    }
    std::memcpy(buffer, run.data(), run.size());
    return absl::OkStatus();
  });
}

absl::Status PageLane::CopyIn(int rank, const PagePieces& pieces) {
  return CopyAll(rank, pieces, [&](std::span<std::byte> run, std::byte* buffer) -> absl::Status {
    if (!immediate()) {
      const Device& device = devices_[rank];
      return device.backend->Copy(*device.stream, run.data(), buffer, run.size());
    }
    std::memcpy(run.data(), buffer, run.size());
    return absl::OkStatus();
  });
}

}  // namespace annulus

#include "kernels/cuda/copy_many.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/sm80/pull.h"

namespace annulus::cuda {
namespace {

bool CanPull(const DeviceCopy& copy) {
  const auto multiple = [](auto value) { return value % kPullAlignment == 0; };
  return multiple(reinterpret_cast<uintptr_t>(copy.to)) &&
         multiple(reinterpret_cast<uintptr_t>(copy.from)) && multiple(copy.bytes);
}

// `from`: kOwnDevice or another one.
absl::Status PullAll(StreamHandle stream, int from, std::span<const DeviceCopy> copies) {
  while (!copies.empty()) {
    PullArguments arguments{};
    arguments.from_device = from;
    arguments.count = static_cast<int>(std::min<size_t>(kMostPulls, copies.size()));
    for (int i = 0; i < arguments.count; ++i) {
      arguments.pulls[i] = {copies[i].to, copies[i].from, static_cast<int64_t>(copies[i].bytes)};
    }
    ANNULUS_RETURN_IF_ERROR(StatusOf(LaunchPull(stream, arguments), "copying many parts"));
    copies = copies.subspan(static_cast<size_t>(arguments.count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CopyMany(StreamHandle stream, int to, int from, std::span<const DeviceCopy> copies) {
  const bool many =
      static_cast<size_t>(std::count_if(copies.begin(), copies.end(), CanPull)) >= kFewestPulls;
  std::vector<DeviceCopy> pulls;
  for (const DeviceCopy& copy : copies) {
    if (many && CanPull(copy)) {
      pulls.push_back(copy);
    } else if (from == to) {
      ANNULUS_RETURN_IF_ERROR(CopyAsync(stream, copy.to, copy.from, copy.bytes));
    } else {
      ANNULUS_RETURN_IF_ERROR(CopyBetween(stream, to, copy.to, from, copy.from, copy.bytes));
    }
  }
  if (pulls.empty()) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(UseDevice(to));
  return PullAll(stream, from == to ? kOwnDevice : from, pulls);
}

}  // namespace annulus::cuda

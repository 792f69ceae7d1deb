#include "kernels/base/gpu_kinds.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"

namespace annulus {
namespace {

constexpr size_t kGiB = size_t{1} << 30;
constexpr size_t kKiB = size_t{1} << 10;

// NVIDIA's data sheets; shared_bytes: CUDA C++ Programming Guide, "Compute Capabilities".
constexpr auto kKinds = std::to_array<GpuKind>({
    {"a10", "NVIDIA A10", 8, 6, 72, 99 * kKiB, 22 * kGiB},
    {"a100-40gb", "NVIDIA A100 40GB", 8, 0, 108, 163 * kKiB, 39 * kGiB},
    {"a100-80gb", "NVIDIA A100 80GB", 8, 0, 108, 163 * kKiB, 79 * kGiB},
    {"h100-80gb", "NVIDIA H100 80GB", 9, 0, 132, 227 * kKiB, 79 * kGiB},
    {"h200", "NVIDIA H200", 9, 0, 132, 227 * kKiB, 139 * kGiB},
    {"l4", "NVIDIA L4", 8, 9, 58, 99 * kKiB, 22 * kGiB},
    {"l40s", "NVIDIA L40S", 8, 9, 142, 99 * kKiB, 44 * kGiB},
    {"rtx-4090", "NVIDIA GeForce RTX 4090", 8, 9, 128, 99 * kKiB, 23 * kGiB},
});

}  // namespace

const GpuKind* FindGpuKind(absl::string_view name) {
  const auto found = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const GpuKind& each) { return name == each.name; });
  return found == kKinds.end() ? nullptr : &*found;
}

std::string GpuKindNames() {
  return absl::StrJoin(kKinds, ", ",
                       [](std::string* out, const GpuKind& each) { out->append(each.name); });
}

}  // namespace annulus

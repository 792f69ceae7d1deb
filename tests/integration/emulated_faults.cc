// The device of annulusd_emulated, which the variable EMULATED_DEVICE describes before main begins:
// "find_error=35" or "major=7,minor=5", in members of EmulatedDevice.
#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "kernels/base/check.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

void Set(const std::string& name, int value) {
  EmulatedDevice& device = EmulatedDevice::Get();
  if (name == "hangs") {
    device.hangs = value != 0;
    return;
  }
  const std::vector<std::pair<std::string, std::atomic<int>*>> numbers = {
      {"find_error", &device.find_error},
      {"image_error", &device.image_error},
      {"allocate_error", &device.allocate_error},
      {"copy_error", &device.copy_error},
      {"major", &device.major},
      {"minor", &device.minor}};
  for (const auto& [known, number] : numbers) {
    if (known != name) continue;
    *number = value;
    return;
  }
  ANNULUS_CHECK(false) << "no fault is called " << name;
}

bool DescribeDevice() {
  EmulatedDevice::Get().guarded = true;
  EmulatedStreams::Get().set_late(true);
  const char* const text = std::getenv("EMULATED_DEVICE");
  if (text == nullptr) return true;
  for (const absl::string_view member : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> sides = absl::StrSplit(member, '=');
    int value = 0;
    ANNULUS_CHECK(absl::SimpleAtoi(sides.second, &value)) << std::string(member);
    Set(sides.first, value);
  }
  return true;
}

const bool described = DescribeDevice();

}  // namespace
}  // namespace annulus::cuda

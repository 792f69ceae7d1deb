#include "client/draw/cell_scale.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"

namespace annulus::client {
namespace {

constexpr Color kLight = {176, 208, 242};
constexpr Color kDark = {10, 52, 112};

}  // namespace

void CellScale::Add(absl::string_view cells) {
  for (const char cell : cells) {
    const int share = static_cast<uint8_t>(cell);
    most_ = std::max(most_, share);
    if (share > 0) least_ = std::min(least_, share);
  }
}

int CellScale::Step(uint8_t share) const {
  return std::min(kSteps, (share * kSteps + most() - 1) / most());
}

std::string CellScale::MostText() const {
  const double percent = most() * 100 / 255.0;
  return percent < 10 ? absl::StrFormat("%.2g%%", percent) : absl::StrFormat("%.0f%%", percent);
}

Color CellScale::ColorOf(int step) {
  const double weight = (step - 1.0) / (kSteps - 1);
  const auto mix = [&](uint8_t light, uint8_t dark) {
    return static_cast<uint8_t>(std::lround(light + (dark - light) * weight));
  };
  return {mix(kLight.red, kDark.red), mix(kLight.green, kDark.green), mix(kLight.blue, kDark.blue)};
}

}  // namespace annulus::client

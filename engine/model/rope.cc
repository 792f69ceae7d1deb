#include "engine/model/rope.h"

#include <cmath>
#include <numbers>

namespace annulus {
namespace {

// Each operation rounds to float32, in the order of the published formula.
float Llama3Frequency(const RopeConfig& rope, float frequency) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low_factor = static_cast<float>(rope.low_frequency_factor);
  const auto context = static_cast<double>(rope.original_context);
  const auto long_wave = static_cast<float>(context / rope.low_frequency_factor);
  const auto short_wave = static_cast<float>(context / rope.high_frequency_factor);
  const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wavelength > long_wave) return frequency / factor;
  if (wavelength < short_wave) return frequency;
  const float smooth = (static_cast<float>(context) / wavelength - low_factor) /
                       static_cast<float>(rope.high_frequency_factor - rope.low_frequency_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> InverseFrequencies(const RopeConfig& rope) {
  const auto theta = static_cast<double>(static_cast<float>(rope.theta));
  const auto rotated = static_cast<float>(2 * rope.pairs);
  std::vector<float> frequencies(static_cast<size_t>(rope.pairs));
  for (int32_t pair = 0; pair < rope.pairs; ++pair) {
    const float exponent = static_cast<float>(2 * pair) / rotated;
    float frequency = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    if (rope.kind == RopeKind::kLinear) frequency /= static_cast<float>(rope.factor);
    if (rope.kind == RopeKind::kLlama3) frequency = Llama3Frequency(rope, frequency);
    frequencies[static_cast<size_t>(pair)] = frequency;
  }
  return frequencies;
}

}  // namespace annulus

#include "engine/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace annulus {
namespace {

// base ^ (pair / pairs), each operation rounded to float32.
float Power(double base, int32_t pair, int32_t pairs) {
  const float exponent = static_cast<float>(2 * pair) / static_cast<float>(2 * pairs);
  return static_cast<float>(
      std::pow(static_cast<double>(static_cast<float>(base)), static_cast<double>(exponent)));
}

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

// The pair (a fraction of one) that turns `turns` times within original_context.
double YarnPair(const RopeConfig& rope, double turns) {
  return 2.0 * rope.pairs *
         std::log(static_cast<double>(rope.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(rope.theta));
}

std::vector<float> YarnFrequencies(const RopeConfig& rope) {
  double low = YarnPair(rope, rope.fast_turns);
  double high = YarnPair(rope, rope.slow_turns);
  if (rope.whole_borders) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, 2.0 * rope.pairs - 1);
  if (low == high) high += 0.001;
  std::vector<float> frequencies;
  for (int32_t pair = 0; pair < rope.pairs; ++pair) {
    const float power = Power(rope.theta, pair, rope.pairs);
    const float ramp =
        (static_cast<float>(pair) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float kept = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    frequencies.push_back(1.0f / (static_cast<float>(rope.factor) * power) * (1.0f - kept) +
                          1.0f / power * kept);
  }
  return frequencies;
}

// Theta that spreads the slowest pair over `prompt_length` as it was over original_context.
double DynamicTheta(const RopeConfig& rope, int64_t prompt_length) {
  if (!IsLong(rope, prompt_length)) return rope.theta;
  const double stretch = rope.factor * static_cast<double>(prompt_length) /
                             static_cast<double>(rope.original_context) -
                         (rope.factor - 1);
  const double rotated = 2.0 * rope.pairs;
  return rope.theta * std::pow(stretch, rotated / (rotated - 2));
}

}  // namespace

bool DependsOnLength(const RopeConfig& rope) {
  // A GGUF file's single list of divisors stands in both.
  return rope.kind == RopeKind::kDynamic ||
         (rope.kind == RopeKind::kLongrope && rope.short_divisors != rope.long_divisors);
}

bool IsLong(const RopeConfig& rope, int64_t prompt_length) {
  return DependsOnLength(rope) && prompt_length > rope.original_context;
}

int64_t RopeLength(std::span<const RopeConfig> ropes, int64_t prompt_length) {
  int64_t length = 0;
  for (const RopeConfig& rope : ropes) {
    if (!IsLong(rope, prompt_length)) continue;
    if (rope.kind == RopeKind::kDynamic) return prompt_length;
    length = std::max(length, rope.original_context + 1);
  }
  return length;
}

absl::string_view RopeFactors(std::span<const RopeConfig> ropes, int64_t prompt_length) {
  if (std::none_of(ropes.begin(), ropes.end(), DependsOnLength)) return "";
  return RopeLength(ropes, prompt_length) == 0 ? "short" : "long";
}

float ScaleAt(const RopeConfig& rope, int64_t position) {
  if (rope.growth == 0) return rope.scale;
  const auto turns = static_cast<double>(position / rope.original_context);
  return static_cast<float>(rope.scale * (1 + rope.growth * std::log1p(turns)));
}

std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t prompt_length) {
  if (rope.kind == RopeKind::kYarn) return YarnFrequencies(rope);
  const double theta =
      rope.kind == RopeKind::kDynamic ? DynamicTheta(rope, prompt_length) : rope.theta;
  const std::vector<float>& divisors =
      IsLong(rope, prompt_length) ? rope.long_divisors : rope.short_divisors;
  std::vector<float> frequencies(static_cast<size_t>(rope.pairs));
  for (int32_t pair = 0; pair < rope.pairs; ++pair) {
    const float power = Power(theta, pair, rope.pairs);
    float frequency = 1.0f / (rope.kind == RopeKind::kLongrope ? divisors[pair] * power : power);
    if (rope.kind == RopeKind::kProportional && pair >= rope.turning) frequency = 0;
    if (rope.kind == RopeKind::kLinear || rope.kind == RopeKind::kProportional)
      frequency /= static_cast<float>(rope.factor);
    if (rope.kind == RopeKind::kLlama3) frequency = Llama3Frequency(rope, frequency);
    frequencies[static_cast<size_t>(pair)] = frequency;
  }
  return frequencies;
}

}  // namespace annulus

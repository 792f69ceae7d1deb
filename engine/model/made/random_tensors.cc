#include "engine/model/made/random_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr float kBiasRange = 0.1f;

// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014): the output
// function of SplitMix64, a bijection that turns a counter into random bits.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t KeyOf(uint64_t seed, absl::string_view name) {
  uint64_t key = Mix(seed + kGolden);
  for (const char letter : name) key = Mix(key + kGolden + static_cast<unsigned char>(letter));
  return key;
}

constexpr int64_t kBlock = 1024;

// Uniform values in [-range, range], 16 random bits each: elements [start, start + count), `start`
// a multiple of kBlock.
void Draw(uint64_t key, float range, DType dtype, std::byte* destination, int64_t start,
          int64_t count) {
  std::array<uint64_t, kBlock / 4> bits;
  std::array<float, kBlock> values;
  const float step = range / 32767.5f;
  for (int64_t first = 0; first < count; first += kBlock) {
    for (int64_t i = 0; i < kBlock / 4; ++i) {
      bits[i] = Mix(key + kGolden * static_cast<uint64_t>((start + first) / 4 + i));
    }
    for (int64_t i = 0; i < kBlock / 4; ++i) {
      for (int part = 0; part < 4; ++part) {
        const auto number = static_cast<int16_t>(bits[i] >> (16 * part));
        values[4 * i + part] = (static_cast<float>(number) + 0.5f) * step;
      }
    }
    const int64_t size = std::min(kBlock, count - first);
    ConvertFromFloat(dtype, values.data(), destination, static_cast<size_t>(size));
    destination += static_cast<size_t>(size) * DTypeSize(dtype);
  }
}

class RandomTensors final : public TensorSource {
 public:
  RandomTensors(const ModelConfig& config, uint64_t seed)
      : seed_(seed), dtype_(config.stored_dtype.value_or(DType::kBF16)) {
    for (RequiredTensor& tensor : RequiredTensors(config)) {
      shapes_.emplace(std::move(tensor.name), std::move(tensor.shape));
    }
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, shape] : shapes_) names.push_back(name);
    return names;
  }

  bool Has(absl::string_view name) const override { return shapes_.contains(std::string(name)); }

  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    const auto found = shapes_.find(std::string(name));
    if (found == shapes_.end()) {
      return absl::NotFoundError(absl::StrCat("the random model has no tensor ", name));
    }
    return TensorInfo{dtype_, found->second};
  }

  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    const auto info = Describe(name);
    if (!info.ok()) return info.status();
    ANNULUS_CHECK(destination.size() == info->bytes()) << name;
    const uint64_t key = KeyOf(seed_, name);
    if (info->shape.size() > 1) {
      Draw(key, Range(*info), dtype_, destination.data(), 0, info->elements());
    } else if (absl::EndsWith(name, ".bias")) {
      Draw(key, kBiasRange, dtype_, destination.data(), 0, info->elements());
    } else {
      const std::vector<float> ones(static_cast<size_t>(info->elements()), 1.0f);
      ConvertFromFloat(dtype_, ones.data(), destination.data(), ones.size());
    }
    return absl::OkStatus();
  }

  // A tensor holds many experts: draws only the requested ones.
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override {
    const auto info = Describe(name);
    if (!info.ok()) return info.status();
    if (info->shape.size() < 2) return TensorSource::ReadRange(name, offset, destination);
    const auto width = static_cast<int64_t>(DTypeSize(dtype_));
    const int64_t begin = static_cast<int64_t>(offset) / width;
    const int64_t start = begin / kBlock * kBlock;
    const int64_t end = begin + static_cast<int64_t>(destination.size()) / width;
    std::vector<std::byte> drawn(static_cast<size_t>((end - start) * width));
    Draw(KeyOf(seed_, name), Range(*info), dtype_, drawn.data(), start, end - start);
    std::copy(drawn.end() - static_cast<int64_t>(destination.size()), drawn.end(),
              destination.begin());
    return absl::OkStatus();
  }

  size_t RangeMemory(absl::string_view name, size_t bytes) const override {
    const auto info = Describe(name);
    if (!info.ok()) return 0;
    const size_t drawn = bytes + static_cast<size_t>(kBlock) * DTypeSize(dtype_);
    return info->shape.size() < 2 ? TensorSource::RangeMemory(name, bytes) : drawn;
  }

 private:
  // Keeps the magnitude of the vectors that a matrix is applied to: [out, in], or [experts, in,
  // out].
  static float Range(const TensorInfo& info) {
    return static_cast<float>(std::sqrt(3 / static_cast<double>(info.shape[1])));
  }

  const uint64_t seed_;
  const DType dtype_;
  std::map<std::string, std::vector<int64_t>> shapes_;
};

}  // namespace

std::unique_ptr<TensorSource> MakeRandomTensors(const ModelConfig& config, uint64_t seed) {
  return std::make_unique<RandomTensors>(config, seed);
}

}  // namespace annulus

#include "bench/attention/structured_head.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <utility>

#include "kernels/base/check.h"

namespace annulus::bench {
namespace {

// Scores of each part of the structure where it is strongest.
constexpr float kSinkScore = 15;
constexpr float kBandScore = 11.5f;
constexpr float kSlashScore = 12.5f;
constexpr float kLineScore = 10.5f;
constexpr float kTopicScore = 9.5f;
constexpr float kNoise = 0.35f;  // of every channel, standard deviation

constexpr double kFastest = 0.1;     // radians per token; the band is about 2 pi / 0.1 wide
constexpr double kManyLines = 0.18;  // of the blocks have a line
constexpr double kFewLines = 0.16;

// Uniform with variance 1: quick to draw.
class Noise {
 public:
  explicit Noise(uint32_t seed) : random_(seed) {}
  float Draw() { return uniform_(random_); }
  int64_t Below(int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random_);
  }
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  std::mt19937 random_;
  std::uniform_real_distribution<float> uniform_{-std::sqrt(3.0f), std::sqrt(3.0f)};
};

class Maker {
 public:
  Maker(int64_t tokens, int head_dim, int head, uint32_t seed)
      : noise_(seed * 1000003u + static_cast<uint32_t>(head)),
        kind_(head % 3),
        pairs_(3 * head_dim / 8),
        sink_(2 * pairs_),
        line_(sink_ + 1),
        topics_(head_dim - line_ - 1),
        scale_(std::sqrt(static_cast<float>(head_dim))) {
    head_.tokens = tokens;
    head_.head_dim = head_dim;
    const size_t size = static_cast<size_t>(tokens) * head_dim;
    for (std::vector<float>* values : {&head_.query, &head_.key}) {
      values->resize(size);
      for (float& value : *values) value = kNoise * noise_.Draw();
    }
    head_.value.resize(size);
    for (float& value : head_.value) value = noise_.Draw();
  }

  StructuredHead Make() && {
    AddDistances();
    AddSinks();
    if (kind_ == 0) AddLines(kManyLines);
    if (kind_ == 1) AddLines(kFewLines);
    if (kind_ == 2) AddTopics();
    return std::move(head_);
  }

 private:
  float& query(int64_t i, int channel) { return head_.query[i * head_.head_dim + channel]; }
  float& key(int64_t i, int channel) { return head_.key[i * head_.head_dim + channel]; }
  // A channel with this on both sides adds `score`.
  float Amplitude(float score) const { return std::sqrt(score * scale_); }

  // Scores that depend on the distance: sum over frequencies of cos(w (i - j - distance)).
  void AddDistances() {
    const float key_size = Amplitude(kBandScore / static_cast<float>(pairs_));
    const float slash = kind_ == 1 ? kSlashScore / kBandScore : 0;
    const auto distance = static_cast<double>(std::max<int64_t>(
        1, head_.tokens / 64 + noise_.Below(std::max<int64_t>(1, head_.tokens / 4))));
    for (int p = 0; p < pairs_; ++p) {
      const double frequency = kFastest * noise_.Share();
      for (int64_t i = 0; i < head_.tokens; ++i) {
        const double angle = std::fmod(frequency * static_cast<double>(i), 2 * std::numbers::pi);
        const double shifted = angle - frequency * distance;
        const auto cosine = static_cast<float>(std::cos(angle));
        const auto sine = static_cast<float>(std::sin(angle));
        key(i, 2 * p) += key_size * cosine;
        key(i, 2 * p + 1) += key_size * sine;
        query(i, 2 * p) += key_size * (cosine + slash * static_cast<float>(std::cos(shifted)));
        query(i, 2 * p + 1) += key_size * (sine + slash * static_cast<float>(std::sin(shifted)));
      }
    }
  }

  void AddSinks() {
    const float size = Amplitude(kSinkScore);
    for (int64_t i = 0; i < std::min<int64_t>(head_.tokens, StructuredHead::kSinks); ++i) {
      key(i, sink_) += size;
    }
    for (int64_t i = 0; i < head_.tokens; ++i) query(i, sink_) += size;
  }

  void AddLines(double share) {
    const float size = Amplitude(kLineScore);
    for (int64_t i = 0; i < head_.tokens; ++i) query(i, line_) += size;
    for (int64_t block = 0; block * StructuredHead::kBlock < head_.tokens; ++block) {
      if (noise_.Share() >= share) continue;
      const int64_t begin = block * StructuredHead::kBlock +
                            noise_.Below(StructuredHead::kBlock - StructuredHead::kLine + 1);
      const int64_t end = std::min(head_.tokens, begin + StructuredHead::kLine);
      for (int64_t i = begin; i < end; ++i) key(i, line_) += size;
    }
  }

  void AddTopics() {
    const float size = Amplitude(kTopicScore);
    const int first = line_ + 1;
    for (int64_t begin = 0; begin < head_.tokens; begin += StructuredHead::kBlock) {
      const int asked = first + static_cast<int>(noise_.Below(topics_));
      const int told = first + static_cast<int>(noise_.Below(topics_));
      const int64_t end = std::min(head_.tokens, begin + StructuredHead::kBlock);
      for (int64_t i = begin; i < end; ++i) {
        query(i, asked) += size;
        key(i, told) += size;
      }
    }
  }

  Noise noise_;
  const int kind_;
  const int pairs_;        // of channels that tell the distance
  const int sink_, line_;  // channels
  const int topics_;       // the channels behind
  const float scale_;
  StructuredHead head_;
};

}  // namespace

StructuredHead MakeStructuredHead(int64_t tokens, int head_dim, int head, uint32_t seed) {
  ANNULUS_CHECK(head_dim >= StructuredHead::kLeastHeadDim && head_dim % 8 == 0)
      << "no structured head of " << head_dim;
  return Maker(tokens, head_dim, head, seed).Make();
}

}  // namespace annulus::bench

#include "engine/sparse/gate_fitting.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// One matrix under Adam.
class Weights {
 public:
  explicit Weights(size_t size) : value(size), gradient_(size), mean_(size), square_(size) {}

  float* gradient(size_t at) { return gradient_.data() + at; }
  void Step(float rate, int step) {
    constexpr float kMean = 0.9f, kSquare = 0.999f, kSmall = 1e-8f;
    const float mean_scale = 1 / (1 - std::pow(kMean, static_cast<float>(step)));
    const float square_scale = 1 / (1 - std::pow(kSquare, static_cast<float>(step)));
    for (size_t i = 0; i < value.size(); ++i) {
      mean_[i] = kMean * mean_[i] + (1 - kMean) * gradient_[i];
      square_[i] = kSquare * square_[i] + (1 - kSquare) * gradient_[i] * gradient_[i];
      value[i] -= rate * mean_[i] * mean_scale / (std::sqrt(square_[i] * square_scale) + kSmall);
      gradient_[i] = 0;
    }
  }

  std::vector<float> value;

 private:
  std::vector<float> gradient_, mean_, square_;
};

class Fit {
 public:
  Fit(const std::vector<GateExamples>& documents, const GateFitting& options)
      : documents_(documents),
        options_(options),
        k_dim_(static_cast<size_t>(documents.front().k_dim)),
        width_(static_cast<size_t>(options.width)),
        query_(static_cast<size_t>(documents.front().heads) * width_ * k_dim_),
        key_(width_ * 3 * k_dim_) {
    std::mt19937 random(options.seed);
    std::normal_distribution<float> normal;
    // Products of two equal random projections keep inner products in the mean; the score divides
    // by sqrt(width) and should by sqrt(k_dim).
    const auto size = static_cast<float>(
        std::pow(1.0 / (static_cast<double>(width_) * static_cast<double>(k_dim_)), 0.25));
    for (size_t w = 0; w < width_; ++w) {
      for (size_t d = 0; d < k_dim_; ++d) {
        const float value = size * normal(random);
        key_.value[w * 3 * k_dim_ + d] = value;
        for (size_t head = 0; head < heads(); ++head) {
          query_.value[(head * width_ + w) * k_dim_ + d] = value;
        }
      }
    }
  }

  FittedGate Run() {
    FittedGate fitted;
    fitted.loss_before = Pass(false);
    for (int pass = 1; pass <= options_.passes; ++pass) {
      Pass(true);
      const float share = static_cast<float>(pass) / static_cast<float>(options_.passes);
      const float rate = options_.rate * (1 - 0.9f * share);
      query_.Step(rate, pass);
      key_.Step(rate, pass);
    }
    fitted.loss_after = Pass(false);
    fitted.query = query_.value;
    fitted.key = key_.value;
    return fitted;
  }

 private:
  size_t heads() const { return static_cast<size_t>(documents_.front().heads); }

  // The mean loss; with `learn` its gradient too.
  double Pass(bool learn) {
    double loss = 0;
    size_t count = 0;
    for (const GateExamples& document : documents_) count += document.examples.size();
    for (const GateExamples& document : documents_) loss += PassDocument(document, count, learn);
    return loss / static_cast<double>(std::max<size_t>(count, 1));
  }

  double PassDocument(const GateExamples& document, size_t count, bool learn) {
    const size_t columns = 3 * k_dim_;
    const size_t pages = document.features.size() / columns;
    std::vector<float> keys(pages * width_, 0.0f);
    for (size_t page = 0; page < pages; ++page) {
      for (size_t w = 0; w < width_; ++w) {
        keys[page * width_ + w] = Dot(key_.value.data() + w * columns,
                                      document.features.data() + page * columns, columns);
      }
    }
    std::vector<float> key_slopes(learn ? keys.size() : 0, 0.0f);
    double loss = 0;
    for (const GateExamples::Example& example : document.examples) {
      loss += PassExample(example, keys, 1.0f / static_cast<float>(count), key_slopes);
    }
    for (size_t page = 0; learn && page < pages; ++page) {
      for (size_t w = 0; w < width_; ++w) {
        AddScaled(key_slopes[page * width_ + w], document.features.data() + page * columns, columns,
                  key_.gradient(w * columns));
      }
    }
    return loss;
  }

  // `key_slopes` is empty where nothing is to be learnt.
  double PassExample(const GateExamples::Example& example, const std::vector<float>& keys,
                     float weight, std::vector<float>& key_slopes) {
    const float scale = 1 / std::sqrt(static_cast<float>(width_));
    const size_t at = static_cast<size_t>(example.head) * width_ * k_dim_;
    std::vector<float> query(width_);
    for (size_t w = 0; w < width_; ++w) {
      query[w] = scale * Dot(query_.value.data() + at + w * k_dim_, example.query.data(), k_dim_);
    }
    std::vector<float> share(static_cast<size_t>(example.pages));
    for (size_t page = 0; page < share.size(); ++page) {
      share[page] = Dot(query.data(), keys.data() + page * width_, width_);
    }
    const float most = *std::max_element(share.begin(), share.end());
    double total = 0;
    for (float& value : share) total += value = std::exp(value - most);
    double loss = 0;
    std::vector<float> query_slopes(width_, 0.0f);
    for (size_t page = 0; page < share.size(); ++page) {
      const auto estimate = static_cast<float>(share[page] / total);
      const float target = example.target[page];
      if (target > 0) loss += target * std::log(target / std::max(estimate, 1e-30f));
      if (key_slopes.empty()) continue;
      const float slope = weight * (estimate - target);
      AddScaled(slope, keys.data() + page * width_, width_, query_slopes.data());
      AddScaled(slope, query.data(), width_, key_slopes.data() + page * width_);
    }
    for (size_t w = 0; w < width_ && !key_slopes.empty(); ++w) {
      AddScaled(scale * query_slopes[w], example.query.data(), k_dim_,
                query_.gradient(at + w * k_dim_));
    }
    return loss;
  }

  static float Dot(const float* a, const float* b, size_t count) {
    float sum = 0;
    for (size_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
  }
  static void AddScaled(float scale, const float* from, size_t count, float* to) {
    for (size_t i = 0; i < count; ++i) to[i] += scale * from[i];
  }

  const std::vector<GateExamples>& documents_;
  const GateFitting& options_;
  const size_t k_dim_, width_;
  Weights query_, key_;
};

}  // namespace

FittedGate FitGate(const std::vector<GateExamples>& documents, const GateFitting& options) {
  ANNULUS_CHECK(!documents.empty()) << "nothing to fit gates to";
  return Fit(documents, options).Run();
}

}  // namespace annulus

// Reference normalisation, activation and rotary embedding.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/ops/checks.h"

namespace annulus::reference {

absl::Status Norm(Stream&, const NormParams& params) {
  CheckNorm(params);
  const int64_t cols = params.output.cols;
  for (int64_t r = 0; r < params.output.rows; ++r) {
    const float* x = params.input.row(r);
    const auto count = static_cast<float>(cols);
    float mean = 0;
    for (int64_t i = 0; params.norm.centred && i < cols; ++i) mean += x[i];
    mean /= count;
    float sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += (x[i] - mean) * (x[i] - mean);
    const float root = std::sqrt(sum / count + params.norm.epsilon);
    const float* const weight = params.weight_of(r);
    float* const output = params.output.row(r);
    for (int64_t i = 0; i < cols; ++i) {
      float value = (x[i] - mean) / root * weight[i];
      if (params.bias != nullptr) value += params.bias[i];
      output[i] = params.accumulate ? output[i] + value : value;
    }
  }
  return absl::OkStatus();
}

namespace {

float Gated(const GatedMulParams& params, float gate, float up) {
  switch (params.activation) {
    case Activation::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::kGeluTanh: {
      const float t = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
      return gate / (1 + std::exp(-2 * t)) * up;
    }
    case Activation::kGeluTanhAlone: {
      const float t = 0.7978845608f * (gate + 0.044715f * gate * gate * gate);
      return gate / (1 + std::exp(-2 * t));
    }
    case Activation::kClampedSwiglu:
      break;
  }
  gate = std::min(gate, params.limit);
  up = std::clamp(up, -params.limit, params.limit);
  return gate / (1 + std::exp(-params.alpha * gate)) * (up + 1);
}

}  // namespace

absl::Status GatedMul(Stream&, const GatedMulParams& params) {
  CheckGatedMul(params);
  for (int64_t r = 0; r < params.output.rows; ++r) {
    for (int64_t i = 0; i < params.output.cols; ++i) {
      params.output.row(r)[i] = Gated(params, params.gate.row(r)[i], params.up.row(r)[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status Scale(Stream&, const ScaleParams& params) {
  for (int64_t r = 0; r < params.values.rows; ++r) {
    for (int64_t i = 0; i < params.values.cols; ++i) {
      float& value = params.values.row(r)[i];
      value = params.factor == 0 ? 0 : value * params.factor;
    }
  }
  return absl::OkStatus();
}

absl::Status SoftCap(Stream&, const SoftCapParams& params) {
  CheckSoftCap(params);
  for (int64_t r = 0; r < params.values.rows; ++r) {
    for (int64_t i = 0; i < params.values.cols; ++i) {
      float& value = params.values.row(r)[i];
      value = params.cap * std::tanh(value / params.cap);
    }
  }
  return absl::OkStatus();
}

absl::Status RopeTable(Stream& stream, const RopeTableParams& params) {
  CheckRopeTable(params);
  const int64_t pairs = params.inverse_frequencies.size();
  AsCpuStream(stream).ParallelFor(params.positions.size(), [&](int64_t r, int) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(params.inverse_frequencies[i]) * params.positions[r];
      params.cosine.row(r)[i] = static_cast<float>(std::cos(angle) * params.scale);
      params.sine.row(r)[i] = static_cast<float>(std::sin(angle) * params.scale);
    }
  });
  return absl::OkStatus();
}

absl::Status Rope(Stream&, const RopeParams& params) {
  CheckRope(params);
  const int64_t pairs = params.cosine.cols;
  for (int64_t r = 0; r < params.values.rows; ++r) {
    for (int h = 0; h < params.heads; ++h) {
      float* x = params.values.row(r) + int64_t{h} * params.head_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        const float cosine = params.cosine.row(r)[i];
        const float sine = params.sine.row(r)[i];
        const float a = x[i];
        const float b = x[i + pairs];
        x[i] = a * cosine - b * sine;
        x[i + pairs] = b * cosine + a * sine;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace annulus::reference

#ifndef ANNULUS_ENGINE_MODEL_ROPE_H_
#define ANNULUS_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <vector>

namespace annulus {

// How the rotary frequencies are formed (Su et al. 2021). kLinear divides all of them by `factor`
// (position interpolation, Chen et al. 2023). kLlama3 divides the slow ones by `factor`, keeps the
// fast ones, and blends in between; the borders are wavelengths, as fractions of `original_context`
// (Llama 3.1 model card).
enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3 };

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;  // > 0, finite
  int32_t pairs = 0;     // rotated pairs of a head; 2 * pairs <= head_dim
  double factor = 1;     // kLinear, kLlama3: >= 1
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;  // > low_frequency_factor
  int64_t original_context = 8192;   // tokens
};

// The `pairs` inverse frequencies as the float32 values that Transformers forms: every step in
// float32, the power correctly rounded. (PyTorch's own float32 power may differ from that by one
// unit in the last place, from one processor to another; on the usual settings it does not.) The
// angle itself is then taken in float64 by the rope_table op.
std::vector<float> InverseFrequencies(const RopeConfig& rope);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_ROPE_H_

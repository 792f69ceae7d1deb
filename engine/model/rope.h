#ifndef ANNULUS_ENGINE_MODEL_ROPE_H_
#define ANNULUS_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// How rotary frequencies are computed (Su et al. 2021).
enum class RopeKind : uint8_t {
  kDefault,
  kLinear,        // all frequencies divided by `factor` (position interpolation, Chen et al. 2023)
  kDynamic,       // theta grows with prompts beyond the trained length ("dynamic NTK", 2023)
  kLlama3,        // slow ones divided by `factor`, fast ones kept, a blend between; the borders are
                  // wavelengths, as fractions of original_context (Llama 3.1 model card)
  kYarn,          // like kLlama3 with borders in turns, and a scale (Peng et al. 2023)
  kProportional,  // the first `turning` pairs, at the speeds that they have among all; the others
                  // stay as they are (Gemma 4)
  kLongrope,      // one divisor per pair, from one of two lists by length (Ding et al. 2024)
};

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;  // > 0, finite
  int32_t pairs = 0;     // rotated pairs per head; 2 * pairs <= head_dim
  int32_t turning = 0;   // kProportional: 0..pairs
  double factor = 1;     // kLinear, kDynamic, kLlama3, kYarn, kProportional: >= 1
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;  // > low_frequency_factor
  // In tokens: the reference length of kLlama3 and kYarn; the longest prompt for which theta is
  // unchanged (kDynamic) or the short divisors are used (kLongrope).
  int64_t original_context = 8192;
  double fast_turns = 32;             // kYarn: "beta_fast", turns within original_context
  double slow_turns = 1;              // kYarn: "beta_slow"
  bool whole_borders = true;          // kYarn: "truncate", round borders to whole pairs
  float scale = 1;                    // of cosine and sine ("attention_factor")
  double growth = 0;                  // >= 0; see ScaleAt
  std::vector<float> short_divisors;  // kLongrope: [pairs]
  std::vector<float> long_divisors;   // kLongrope: [pairs]
};

// Whether a sequence's frequencies depend on its prompt's length. A sequence uses the same
// frequencies from its first to its last token, since written keys are never rotated again. Only
// the prompt determines them, so the number of tokens a request may generate has no influence.
// (Transformers uses the length so far: the same frequencies for the prompt, but others once the
// answer grows beyond original_context, with dynamic NTK at every token, applied to keys that were
// rotated with different ones.)
bool DependsOnLength(const RopeConfig& rope);

// Whether a prompt of `prompt_length` tokens has different frequencies from a very short one.
bool IsLong(const RopeConfig& rope, int64_t prompt_length);

// Identifies the frequencies for a prompt of `prompt_length` tokens: 0 for those of short prompts,
// otherwise a length with the same frequencies. Sequences may share keys only if this is equal.
int64_t RopeLength(std::span<const RopeConfig> ropes, int64_t prompt_length);

// The same for people: "short" or "long"; empty if no rope of the model depends on length.
absl::string_view RopeFactors(std::span<const RopeConfig> ropes, int64_t prompt_length);

// The scale of cosine and sine at a position: `scale` * (1 + growth * ln(1 + floor(position /
// original_context))).
float ScaleAt(const RopeConfig& rope, int64_t position);

// The `pairs` inverse frequencies for a prompt of `prompt_length` tokens: the float32 values that
// Transformers computes, with every step in float32 and the power correctly rounded. (PyTorch's own
// float32 power may differ by one unit in the last place between processors; for usual settings it
// does not.) The rope_table op then computes angles in float64.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t prompt_length = 0);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_ROPE_H_

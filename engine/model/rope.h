#ifndef ANNULUS_ENGINE_MODEL_ROPE_H_
#define ANNULUS_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// How the rotary frequencies are formed (Su et al. 2021).
enum class RopeKind : uint8_t {
  kDefault,
  kLinear,    // all divided by `factor` (position interpolation, Chen et al. 2023)
  kDynamic,   // beyond the trained length theta grows with the prompt ("dynamic NTK", 2023)
  kLlama3,    // slow ones divided by `factor`, fast ones kept, a blend between; the borders are
              // wavelengths, as fractions of original_context (Llama 3.1 model card)
  kYarn,      // the same idea with borders in numbers of turns, and a scale (Peng et al. 2023)
  kLongrope,  // one divisor per pair, from one of two lists by length (Ding et al. 2024)
};

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;  // > 0, finite
  int32_t pairs = 0;     // rotated pairs of a head; 2 * pairs <= head_dim
  double factor = 1;     // kLinear, kDynamic, kLlama3, kYarn: >= 1
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;  // > low_frequency_factor
  // Tokens: what kLlama3 and kYarn refer to; the longest prompt with theta unchanged (kDynamic) or
  // with the short divisors (kLongrope).
  int64_t original_context = 8192;
  double fast_turns = 32;             // kYarn: "beta_fast", turns within original_context
  double slow_turns = 1;              // kYarn: "beta_slow"
  bool whole_borders = true;          // kYarn: "truncate", borders are rounded to whole pairs
  float scale = 1;                    // of cosine and sine ("attention_factor")
  std::vector<float> short_divisors;  // kLongrope: [pairs]
  std::vector<float> long_divisors;   // kLongrope: [pairs]
};

// Whether the frequencies of a sequence depend on the length of its prompt. A sequence has one set
// of frequencies, from its first token to its last: keys that are written are never rotated anew.
// The prompt alone settles which, so that how many tokens a request may generate changes none of
// them. (Transformers goes by the length so far. It has the same set while it reads the prompt, and
// changes it when the answer grows past original_context, with dynamic NTK at every token, over
// keys that were rotated by another.)
bool DependsOnLength(const RopeConfig& rope);

// Whether a prompt of `prompt_length` has other frequencies than the shortest ones.
bool IsLong(const RopeConfig& rope, int64_t prompt_length);

// Names the frequencies of a sequence whose prompt has `prompt_length` tokens: 0 for those of the
// shortest, else a length that has the same ones. Sequences share keys only where this is equal.
int64_t RopeLength(std::span<const RopeConfig> ropes, int64_t prompt_length);

// The same for people: "short" or "long"; empty if no rope of the model depends on length.
absl::string_view RopeFactors(std::span<const RopeConfig> ropes, int64_t prompt_length);

// The `pairs` inverse frequencies for a prompt of `prompt_length` tokens, as the float32 values
// that Transformers forms: every step in float32, the power correctly rounded. (PyTorch's own
// float32 power may differ from that by one unit in the last place, from one processor to another;
// on the usual settings it does not.) The angle itself is then taken in float64 by the rope_table
// op.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t prompt_length = 0);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_ROPE_H_

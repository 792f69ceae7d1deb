#ifndef ANNULUS_ENGINE_MODEL_ROPE_H_
#define ANNULUS_ENGINE_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

namespace annulus {

// How the rotary frequencies are formed (Su et al. 2021).
enum class RopeKind : uint8_t {
  kDefault,
  kLinear,    // all divided by `factor` (position interpolation, Chen et al. 2023)
  kDynamic,   // beyond the trained length theta grows with the sequence ("dynamic NTK", 2023)
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
  // Tokens: what kLlama3 and kYarn refer to; the longest sequence with theta unchanged (kDynamic)
  // or with the short divisors (kLongrope).
  int64_t original_context = 8192;
  double fast_turns = 32;             // kYarn: "beta_fast", turns within original_context
  double slow_turns = 1;              // kYarn: "beta_slow"
  bool whole_borders = true;          // kYarn: "truncate", borders are rounded to whole pairs
  float scale = 1;                    // of cosine and sine ("attention_factor")
  std::vector<float> short_divisors;  // kLongrope: [pairs]
  std::vector<float> long_divisors;   // kLongrope: [pairs]
};

// Whether the frequencies of a sequence depend on its total length: the prompt and the most tokens
// that it may generate. A sequence has one length, and so one set of frequencies, from its first
// token to its last: keys that are written are never rotated anew. (Transformers starts from the
// length so far and changes the set when a sequence grows past original_context; both agree
// wherever a sequence stays on one side of it.)
bool DependsOnLength(const RopeConfig& rope);

// Whether a sequence of `total_length` has other frequencies than the shortest ones.
bool IsLong(const RopeConfig& rope, int64_t total_length);

// Names the frequencies of a sequence of `total_length`: 0 for those of the shortest, else a length
// that has the same ones. Sequences share keys only where this is equal.
int64_t RopeLength(std::span<const RopeConfig> ropes, int64_t total_length);

// The `pairs` inverse frequencies for a sequence of `total_length` tokens, as the float32 values
// that Transformers forms: every step in float32, the power correctly rounded. (PyTorch's own
// float32 power may differ from that by one unit in the last place, from one processor to another;
// on the usual settings it does not.) The angle itself is then taken in float64 by the rope_table
// op.
std::vector<float> InverseFrequencies(const RopeConfig& rope, int64_t total_length = 0);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_ROPE_H_

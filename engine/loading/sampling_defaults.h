#ifndef ANNULUS_ENGINE_LOADING_SAMPLING_DEFAULTS_H_
#define ANNULUS_ENGINE_LOADING_SAMPLING_DEFAULTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api/request.h"

namespace annulus {

struct SamplingDefaults {
  SamplingParams params;
  std::vector<std::string> warnings;  // values that were out of range, and what is used instead
};

// The sampling that a model's publisher recommends: temperature, top_p, top_k, min_p and
// repetition_penalty of a generation_config.json, and temperature 0 where do_sample is false. What
// the file does not say keeps the defaults of SamplingParams. Its lengths (max_new_tokens,
// max_length) are not used: here a request holds memory for what it may generate.
//
// These are recommendations, so a number out of range does not keep the model from being served:
// the nearest number in range is taken, and the values by which publishers turn a limit off (top_k
// -1; top_p 0 or less for greedy) do so here. INVALID_ARGUMENT if a value has another type, with
// file, key, value and what is allowed.
absl::StatusOr<SamplingDefaults> ParseSamplingDefaults(absl::string_view json,
                                                       absl::string_view file_name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_LOADING_SAMPLING_DEFAULTS_H_

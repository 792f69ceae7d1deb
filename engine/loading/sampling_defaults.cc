#include "engine/loading/sampling_defaults.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/json_fields.h"
#include "engine/base/json_parser.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr double kLargest = std::numeric_limits<double>::max();
// The smallest normal float, for ranges without 0: as top_p it keeps only the likeliest token.
constexpr double kAboveZero = std::numeric_limits<float>::min();

class DefaultsReader {
 public:
  DefaultsReader(const JsonFields& fields, absl::string_view file_name)
      : fields_(fields), file_name_(file_name) {}

  // Reads `key` into `value` where the file has it, moved into the range.
  absl::Status Read(const char* key, double least, double most, float* value) {
    ANNULUS_ASSIGN_OR_RETURN(const double number,
                             fields_.Number(key, -kLargest, kLargest, static_cast<double>(*value)));
    if (!fields_.Has(key)) return absl::OkStatus();
    *value = static_cast<float>(std::clamp(number, least, most));
    if (number < least || number > most) Warn(key, number, *value);
    return absl::OkStatus();
  }

  // Less than 1 means any number of tokens, which is written 0 here.
  absl::Status ReadTopK(int32_t* value) {
    constexpr char kKey[] = "top_k";
    constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
    ANNULUS_ASSIGN_OR_RETURN(const int64_t number,
                             fields_.Integer(kKey, std::numeric_limits<int64_t>::min(),
                                             std::numeric_limits<int64_t>::max(), 0));
    *value = static_cast<int32_t>(std::clamp(number, int64_t{0}, kMost));
    if (number != *value) Warn(kKey, static_cast<double>(number), *value);
    return absl::OkStatus();
  }

  std::vector<std::string> TakeWarnings() { return std::move(warnings_); }

 private:
  void Warn(const char* key, double given, double taken) {
    warnings_.push_back(absl::StrCat(file_name_, ": ", key, " is ", given,
                                     ", which is out of range; ", taken,
                                     " is used if a request does not set it"));
  }

  const JsonFields& fields_;
  const absl::string_view file_name_;
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<SamplingDefaults> ParseSamplingDefaults(absl::string_view json,
                                                       absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json object,
                           ParseJsonTree(json, file_name, JsonNumbers::kPython));
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": not a JSON object"));
  }
  const JsonFields fields(std::string(file_name), "", object);
  DefaultsReader reader(fields, file_name);
  SamplingDefaults defaults;
  SamplingParams& params = defaults.params;
  ANNULUS_RETURN_IF_ERROR(reader.Read("temperature", 0, 2, &params.temperature));
  ANNULUS_RETURN_IF_ERROR(reader.Read("top_p", kAboveZero, 1, &params.top_p));
  ANNULUS_RETURN_IF_ERROR(reader.Read("min_p", 0, 1, &params.min_p));
  ANNULUS_RETURN_IF_ERROR(reader.Read("repetition_penalty", 0.1, 10, &params.repetition_penalty));
  ANNULUS_RETURN_IF_ERROR(reader.ReadTopK(&params.top_k));
  ANNULUS_ASSIGN_OR_RETURN(const bool sample, fields.Boolean("do_sample", true));
  if (!sample) params.temperature = 0;
  defaults.warnings = reader.TakeWarnings();
  return defaults;
}

}  // namespace annulus

#include "engine/sampling_defaults.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/json_fields.h"
#include "engine/base/json_parser.h"
#include "engine/model/regular_file.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kFile[] = "generation_config.json";
constexpr size_t kMostFileBytes = size_t{1} << 20;
// The least float above 0, for ranges that leave 0 out.
constexpr double kAboveZero = std::numeric_limits<float>::denorm_min();

// Reads `key` into `value` where the file has it.
absl::Status ReadNumber(const JsonFields& fields, const char* key, double least, double most,
                        float* value) {
  ANNULUS_ASSIGN_OR_RETURN(const double number,
                           fields.Number(key, least, most, static_cast<double>(*value)));
  if (fields.Has(key)) *value = static_cast<float>(number);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingParams> ParseSamplingDefaults(absl::string_view json,
                                                     absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json object, ParseJsonTree(json, file_name));
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": not a JSON object"));
  }
  const JsonFields fields(std::string(file_name), "", object);
  SamplingParams params;
  ANNULUS_RETURN_IF_ERROR(ReadNumber(fields, "temperature", 0, 2, &params.temperature));
  ANNULUS_RETURN_IF_ERROR(ReadNumber(fields, "top_p", kAboveZero, 1, &params.top_p));
  ANNULUS_RETURN_IF_ERROR(ReadNumber(fields, "min_p", 0, 1, &params.min_p));
  ANNULUS_RETURN_IF_ERROR(
      ReadNumber(fields, "repetition_penalty", kAboveZero, 10, &params.repetition_penalty));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t top_k,
                           fields.Integer("top_k", 0, std::numeric_limits<int32_t>::max(), 0));
  params.top_k = static_cast<int32_t>(top_k);
  ANNULUS_ASSIGN_OR_RETURN(const bool sample, fields.Boolean("do_sample", true));
  if (!sample) params.temperature = 0;
  return params;
}

absl::StatusOr<SamplingParams> LoadSamplingDefaults(const std::string& directory) {
  const absl::StatusOr<std::string> json = ReadSmallFile(directory, kFile, kMostFileBytes);
  if (absl::IsNotFound(json.status())) return SamplingParams();
  ANNULUS_RETURN_IF_ERROR(json.status());
  return ParseSamplingDefaults(*json, absl::StrCat(directory, "/", kFile));
}

}  // namespace annulus

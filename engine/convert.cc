#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/api.h"
#include "engine/model/convert_model.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::string> ConvertModelDirectory(const std::string& directory, DType dtype,
                                                  const std::string& destination) {
  ANNULUS_ASSIGN_OR_RETURN(const Conversion conversion,
                           ConvertModel(directory, dtype, destination));
  std::string report;
  for (const ConvertedMatrix& matrix : conversion.matrices) {
    absl::StrAppend(&report, matrix.name, ": ", DTypeName(matrix.from), " to ",
                    DTypeName(matrix.to), ", relative error ",
                    absl::StrFormat("%.5f", matrix.relative_error), "\n");
  }
  absl::StrAppend(&report, "weights:          ", conversion.bytes, " bytes\n",
                  "relative error:   ", absl::StrFormat("%.5f", conversion.relative_error), "\n");
  return report;
}

}  // namespace annulus

#ifndef ANNULUS_ENGINE_MODEL_FINITE_WEIGHTS_H_
#define ANNULUS_ENGINE_MODEL_FINITE_WEIGHTS_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "engine/model/matrix_reader.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// One NaN among the weights makes every answer NaN, so each number is looked at while it is loaded.

// Whether every number of `rows` is finite and stays so as `to`. For codes: whether codes and
// scales are those of finite weights. Much faster than reading the rows was.
bool StaysFinite(const HostTensorView& rows, DType to);

// Reads the whole matrix: OK if every number stays finite as `to`, else INVALID_ARGUMENT with the
// tensor, how many do not, and the first such row. Errors of MatrixReader::Read.
absl::Status CheckFinite(MatrixReader& reader, const StoredMatrix& matrix, DType to);

// The same for a vector that was read.
absl::Status CheckFinite(const std::string& name, std::span<const float> values);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FINITE_WEIGHTS_H_

#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_FINITE_WEIGHTS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_FINITE_WEIGHTS_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/base/dtype.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// A single NaN weight makes every answer NaN, so every number is checked while it is loaded.

// Whether every number in `rows` is finite and remains finite as `to`. For codes: whether the codes
// and scales are those of finite weights. Much faster than reading the rows.
bool StaysFinite(const HostTensorView& rows, DType to);

// Reads the whole matrix and checks that every number remains finite as `to`. INVALID_ARGUMENT
// names the tensor, how many numbers do not, and the first row with one. Also returns the errors of
// MatrixReader::Read.
absl::Status CheckFinite(MatrixReader& reader, const StoredMatrix& matrix, DType to);

// The same for a vector that has been read.
absl::Status CheckFinite(const std::string& name, std::span<const float> values);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_FINITE_WEIGHTS_H_

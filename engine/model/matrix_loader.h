#ifndef ANNULUS_ENGINE_MODEL_MATRIX_LOADER_H_
#define ANNULUS_ENGINE_MODEL_MATRIX_LOADER_H_

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/matrix_reader.h"
#include "kernels/backend.h"
#include "kernels/base/quantize.h"
#include "kernels/registry.h"

namespace annulus {

// A matrix of a checkpoint, what it becomes, and where it goes.
struct MatrixToLoad {
  const StoredMatrix* stored;
  DType dtype;
  PackedMatrix* target;
};

// Packs matrices that were checked, on as many threads as the backend's device gives the process.
// Blocks of rows are read and packed one by one, so that memory beyond the result is a block per
// thread (see MatrixReader). Each thread has a reader
// of its own. `error` gains what quantising loses.
// RESOURCE_EXHAUSTED where they cannot fit, before anything is read; INVALID_ARGUMENT as
// CheckFinite; else the first error of a block.
absl::Status LoadMatrices(const std::vector<MatrixToLoad>& matrices,
                          const std::function<MatrixReader()>& make_reader, Backend& backend,
                          const OpTable& ops, QuantizationError& error);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MATRIX_LOADER_H_

#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_LOADER_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_LOADER_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/backend.h"
#include "kernels/base/quantize.h"
#include "kernels/registry.h"

namespace annulus {

// A matrix of a checkpoint, the dtype to pack it as, and where to put it.
struct MatrixToLoad {
  const StoredMatrix* stored;
  DType dtype;
  // Null: the matrix is read and checked, and not kept. With storage: filled in place.
  PackedMatrix* target;
};

// Where a matrix of so many bytes ends and another may begin: as the allocators of all devices
// align, on which some libraries rely.
inline size_t AlignedMatrix(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Packs matrices that MatrixReader::Check has accepted, on as many threads as the backend's device
// gives the process. Reads and packs blocks of rows one at a time, so it needs one block of memory
// per thread besides the result (see MatrixReader). Each thread makes its own reader. Adds
// quantisation errors to `error`. Errors:
// - RESOURCE_EXHAUSTED: the matrices do not fit; returned before anything is read.
// - INVALID_ARGUMENT: as for CheckFinite.
// - Otherwise the first error of any block.
absl::Status LoadMatrices(const std::vector<MatrixToLoad>& matrices,
                          const std::function<MatrixReader()>& make_reader, Backend& backend,
                          const OpTable& ops, QuantizationError& error);

// Memory that LoadMatrix takes for a matrix besides its target, the reader's buffers included.
ReadingBytes LoadingBytes(const StoredMatrix& matrix, const MatrixReader& reader);

// Packs one matrix, whose target has storage, on the calling thread. Errors as for LoadMatrices.
absl::Status LoadMatrix(const MatrixToLoad& matrix, MatrixReader& reader, const OpTable& ops);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_MATRIX_LOADER_H_

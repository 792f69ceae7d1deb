#include "kernels/cuda/tuning/linear_plan.h"

#include <algorithm>

#include "kernels/base/quantize.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/sm80/linear.h"

namespace annulus::cuda {
namespace {

int64_t RoundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr int64_t kWidenedOutputs = 2048;    // at a time
constexpr int64_t kFewerWidenedRows = 2048;  // of fewer rows twice as many

size_t PieceBytes(int64_t bytes) { return static_cast<size_t>(RoundedUp(bytes, 256)); }

size_t ScaleBytes(int64_t rows) { return PieceBytes(rows * static_cast<int64_t>(sizeof(float))); }

}  // namespace

int FewRowsTiles(int64_t out_features, bool tensor, const DeviceInfo& device) {
  int tiles = tensor ? kMostTilesTensor : kMostTilesFloat;
  const auto fits = [&] {
    const size_t bytes = tensor ? FewRowsTensorBytes(tiles) : FewRowsFloatBytes(tiles);
    return bytes <= device.shared_bytes &&
           out_features >= int64_t{8} * tiles * device.multiprocessors;
  };
  while (tiles > 1 && !fits()) tiles /= 2;
  return tiles;
}

int64_t FewRowsBlocks(int64_t out_features, int tiles, bool streamed, const DeviceInfo& device) {
  const int64_t groups = (out_features + 8 * tiles - 1) / (8 * tiles);
  return streamed ? std::min<int64_t>(groups, int64_t{kFewRowsBlocks} * device.multiprocessors)
                  : groups;
}

int ManyRowsTiles(int64_t rows, int64_t out_features, const DeviceInfo& device) {
  const int64_t down = (rows + kBlockRows - 1) / kBlockRows;
  int tiles = kMostTilesMany;
  const auto blocks = [&] {
    return down * ((out_features + kTileOutputs * tiles - 1) / (kTileOutputs * tiles));
  };
  while (tiles > 1 && blocks() < device.multiprocessors) tiles /= 2;
  return tiles;
}

ProductScratch ScratchOfManyRows(int64_t rows, int64_t in, bool codes) {
  ProductScratch scratch;
  if (codes) scratch.scales = ScaleBytes(rows);
  scratch.inputs = PieceBytes(rows * RoundedUp(in, kRoundedDepth) * 2);
  return scratch;
}

ProductScratch ScratchOfFewCodes(int64_t rows, int64_t in) {
  ProductScratch scratch;
  scratch.scales = ScaleBytes(rows);
  scratch.inputs = PieceBytes(rows * RoundedUp(in, 4) * static_cast<int64_t>(sizeof(float)));
  return scratch;
}

ProductScratch ScratchOfLibrary(int64_t rows, int64_t in) {
  ProductScratch scratch;
  scratch.inputs = PieceBytes(rows * RoundedUp(in, kDepthStep) * 2);
  scratch.library = Products::kWorkspaceBytes;
  return scratch;
}

ProductScratch ScratchOfFp8Library(int64_t rows, int64_t in, int64_t out, bool aside) {
  ProductScratch scratch;
  scratch.scales = ScaleBytes(rows);
  scratch.inputs = PieceBytes(rows * RoundedUp(in, kDepthStep));
  if (aside) scratch.sums = PieceBytes(rows * out * static_cast<int64_t>(sizeof(float)));
  scratch.library = Products::kWorkspaceBytes;
  return scratch;
}

bool IsWidened(DType dtype) {
  return QuantizedGroup(dtype) > 0 || dtype == DType::kI8 || dtype == DType::kF8E4M3 ||
         dtype == DType::kF8E5M2;
}

int64_t WidenedOutputs(int64_t rows, int64_t out) {
  return std::min(out, rows < kFewerWidenedRows ? 2 * kWidenedOutputs : kWidenedOutputs);
}

// Of fewer rows more outputs are widened.
ProductScratch ScratchOfWidened(int64_t rows, int64_t in, int64_t out, bool aside) {
  const int64_t outputs = std::min(out, 2 * kWidenedOutputs);
  ProductScratch scratch = ScratchOfLibrary(rows, in);
  scratch.scales = ScaleBytes(rows);
  scratch.factors = ScaleBytes(outputs);
  scratch.weights = PieceBytes(outputs * RoundedUp(in, kDepthStep) * 2);
  const int64_t most =
      std::max(rows * WidenedOutputs(rows, out), std::min(rows, kFewerWidenedRows - 1) * outputs);
  if (aside) scratch.sums = PieceBytes(most * static_cast<int64_t>(sizeof(float)));
  return scratch;
}

Fp8Products Fp8ProductsOf(const DeviceInfo& device) {
  if (device.major < 8 || (device.major == 8 && device.minor < 9)) return Fp8Products::kNone;
  return device.major == 9 && device.minor == 0 ? Fp8Products::kScaled : Fp8Products::kSums;
}

bool Fp8OutputFits(const MatrixView& output) {
  return output.cols % 4 == 0 && output.stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(output.data) % 16 == 0;
}

}  // namespace annulus::cuda

#ifndef ANNULUS_KERNELS_OPS_GATED_BLOCK_H_
#define ANNULUS_KERNELS_OPS_GATED_BLOCK_H_

#include <span>

#include "kernels/ops/elementwise.h"
#include "kernels/ops/linear.h"

namespace annulus {

// A whole gated block: down.output = down(activation(gate(x), up(x))). A block without a gate
// (Activation::kGeluTanhAlone) has one product, whose result is activated alone.
//
// The bits are those of the separate ops: Linears() of `products`, gated_mul into the output of the
// first, then `linear` with `down`. The weights may have different dtypes and activations.
//
// The outputs of `products` are workspace of the op: afterwards they hold anything.
//
// FLOPs: 2 * rows * intermediate * (products * hidden + out). Bytes, if the table computes both
// products and their activation piece by piece: the weights and the input once for all rows that
// it packs together, the output once; of `intermediate` values per row only the activated ones, 2
// bytes each (packed as `down` reads them) or 4 (float32), written once and read at least once. The
// separate ops write 12 bytes per value and read 12 before `down` multiplies.
struct GatedBlockParams {
  // Gate and up, or the one product: of one input, [rows, hidden], to [rows, intermediate] each.
  // Neither accumulates.
  std::span<const LinearParams> products;
  Activation activation = Activation::kSilu;
  float alpha = 0;  // see GatedMulParams
  float limit = 0;
  LinearParams down;  // reads the output of the first product

  // The activation as an op of its own.
  GatedMulParams gated_mul() const {
    const MatrixView& output = products.front().output;
    return {output, products.back().output, output, activation, alpha, limit};
  }
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_GATED_BLOCK_H_

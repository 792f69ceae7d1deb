#ifndef ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_RING_H_
#define ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_RING_H_

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm80/linear_weights.h"

// Streams weights to a warp that multiplies few rows: a ring of stages in shared memory, filled by
// 16-byte copies that run ahead of the products. (kStages - 1) * kStageBytes per output and warp
// are under way. Warps share nothing of it, so none waits for another.

namespace annulus::cuda {

// The range of depth that one warp multiplies.
struct Part {
  int64_t begin;
  int64_t end;  // padded to a multiple of kDepthStep
};
// Part `number` of the depth; the last ones may be empty.
ANNULUS_DEVICE Part PartOf(int number, int64_t in_features) {
  const int64_t depth = PartDepth(in_features);
  const int64_t padded = (in_features + kDepthStep - 1) / kDepthStep * kDepthStep;
  const int64_t begin = Smaller(number * depth, padded);
  return {begin, Smaller(begin + depth, padded)};
}
ANNULUS_DEVICE Part PartOfWarp(int64_t in_features) { return PartOf(WarpIndex(), in_features); }

// A warp's ring. Stage s of output o holds bytes [s * kStageBytes, ..) of its part of the row, in
// 16-byte pieces. The places of the pieces differ between outputs, so that lanes of different
// outputs read different banks.
struct WeightRing {
  static constexpr int kStages = 4;
  static constexpr int kStageBytes = 128;  // per output
  // Bytes of one warp's ring for 8 * tiles outputs.
  static constexpr int Bytes(int tiles) { return kStages * 8 * tiles * kStageBytes; }

  std::byte* memory;        // [kStages][8 * tiles][kStageBytes]
  const std::byte* source;  // where the part begins in the first output's row
  int64_t row_bytes;
  int64_t bytes;     // of the part, per output
  int outputs;       // [8 * tiles]
  int64_t existing;  // how many outputs exist; the others are padding
};

template <int kBits>
ANNULUS_DEVICE WeightRing RingOfWarp(const WeightView& w, const Part& part, int tiles) {
  const int64_t first = BlockX() * 8 * tiles;
  WeightRing ring;
  ring.memory = SharedMemory() + WarpIndex() * WeightRing::Bytes(tiles);
  ring.source = w.values + first * w.row_bytes + part.begin * kBits / 8;
  ring.row_bytes = w.row_bytes;
  ring.bytes = (part.end - part.begin) * kBits / 8;
  ring.outputs = 8 * tiles;
  ring.existing = w.out_features - first;
  return ring;
}

// Uses the output's three bits in reverse, so that neighbours, pairs and fours of outputs stay in
// different banks.
ANNULUS_DEVICE int PlaceOfPiece(int output, int piece) {
  return piece ^ ((output & 1) << 2 | (output & 2) | (output >> 2 & 1));
}

ANNULUS_DEVICE std::byte* StageOf(const WeightRing& ring, int stage, int output) {
  return ring.memory +
         (stage % WeightRing::kStages * ring.outputs + output) * WeightRing::kStageBytes;
}

// Starts the copies of a stage; beyond the part, just closes an empty group of copies.
ANNULUS_DEVICE void Fetch(const WeightRing& ring, int stage) {
  const int piece = Lane() % 8;
  const int64_t offset = int64_t{stage} * WeightRing::kStageBytes + piece * 16;
  if (int64_t{stage} * WeightRing::kStageBytes < ring.bytes) {
    for (int o = Lane() / 8; o < ring.outputs; o += kWarp / 8) {
      AsyncCopy16(StageOf(ring, stage, o) + PlaceOfPiece(o, piece) * 16,
                  ring.source + o * ring.row_bytes + offset,
                  o < ring.existing && offset < ring.bytes);
    }
  }
  AsyncCommit();
}

ANNULUS_DEVICE void FetchFirst(const WeightRing& ring) {
  for (int stage = 0; stage < WeightRing::kStages - 1; ++stage) Fetch(ring, stage);
}

// Waits for a stage and starts the copies of the one that replaces the previous stage.
ANNULUS_DEVICE void NextStage(const WeightRing& ring, int stage) {
  AsyncWait<WeightRing::kStages - 2>();
  SyncWarp();
  Fetch(ring, stage + WeightRing::kStages - 1);
}

// The address of byte `at` of an output's stage.
ANNULUS_DEVICE const std::byte* BytesOf(const WeightRing& ring, int stage, int output, int at) {
  return StageOf(ring, stage, output) + PlaceOfPiece(output, at / 16) * 16 + at % 16;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_RING_H_

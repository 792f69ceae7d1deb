#ifndef ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_STREAM_H_
#define ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_STREAM_H_

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm80/few_rows/weight_ring.h"

// Streams the weights of one part of the depth to a warp, group of outputs after group: a ring of
// stages in shared memory, filled by 16-byte copies that run ahead of the products and do not stop
// between groups. Warps share nothing of it, so none waits for another.

namespace annulus::cuda {

// The groups that a warp multiplies: First(), First() + Step() .. and of no output from End() on.
// These are for a grid whose blocks take them by turns, all warps of a block the same.
struct GridWalk {
  ANNULUS_DEVICE static int First() { return static_cast<int>(BlockX()); }
  ANNULUS_DEVICE static int Step() { return static_cast<int>(GridX()); }
  ANNULUS_DEVICE static int64_t End(const WeightView& w) { return w.out_features; }
};

// A group is 8 * kTiles outputs. A stage has kStageBytes of each, in 16-byte pieces whose places
// differ between outputs, so that lanes of different outputs read different banks. The ring has
// room for kRingStages.
template <int kBits, int kTiles, int kRingStages, class Walk>
class WeightStream {
 public:
  static constexpr int kStageBytes = 128;
  static constexpr int kOutputs = 8 * kTiles;
  static constexpr int kStages = kRingStages;
  static constexpr int kSlotBytes = kOutputs * kStageBytes;
  static constexpr int kBytes = kStages * kSlotBytes;
  static constexpr int kRowsAtOnce = kWarp / 8;  // outputs of which the warp copies at once

  // `stages` of every group; the part may end earlier.
  ANNULUS_DEVICE WeightStream(const WeightView& w, const Part& part, int stages, const Walk& walk)
      : weight_(w), walk_(walk), memory_(SharedMemory() + WarpIndex() * kBytes), stages_(stages) {
    const int output = Lane() / 8;
    to_ = output * kStageBytes + PlaceOfPiece(output, Lane() % 8) * 16;
    begin_ = static_cast<int>(part.begin * kBits / 8) + Lane() % 8 * 16;
    bytes_ = static_cast<int>((part.end - part.begin) * kBits / 8) - Lane() % 8 * 16;
    output_ = walk_.First() * kOutputs + output;
    StartGroup();
    for (int s = 0; s < kStages - 1; ++s) Fetch();
  }

  // Waits for the next stage, replaces the one before by one to come and returns the slot.
  ANNULUS_DEVICE const std::byte* Next() {
    AsyncWait<kStages - 2>();
    SyncWarp();
    Fetch();
    std::byte* const slot = memory_ + use_;
    use_ = use_ + kSlotBytes == kBytes ? 0 : use_ + kSlotBytes;
    return slot;
  }

 private:
  ANNULUS_DEVICE void StartGroup() {
    source_ = weight_.values + output_ * weight_.row_bytes + begin_;
    left_ = bytes_;
    stage_ = 0;
  }

  // Starts the copies of a stage; behind the last one, just closes an empty group of copies.
  ANNULUS_DEVICE void Fetch() {
    const int existing = static_cast<int>(walk_.End(weight_)) - output_;
    if (existing > 0) {
      std::byte* const to = memory_ + fill_;
      const std::byte* from = source_;
#pragma unroll
      for (int i = 0; i < kOutputs / kRowsAtOnce; ++i) {
        AsyncCopy16(to + i * kRowsAtOnce * kStageBytes + (to_ ^ (i % 2 * 16)), from,
                    left_ > 0 && i * kRowsAtOnce < existing);
        from += kRowsAtOnce * weight_.row_bytes;
      }
      source_ += kStageBytes;
      left_ -= kStageBytes;
      if (++stage_ == stages_) {
        output_ += walk_.Step() * kOutputs;
        StartGroup();
      }
    }
    fill_ = fill_ + kSlotBytes == kBytes ? 0 : fill_ + kSlotBytes;
    AsyncCommit();
  }

  const WeightView& weight_;
  const Walk walk_;
  std::byte* const memory_;
  const int stages_;
  int begin_;   // this lane's first byte of a row
  int bytes_;   // of the part from there on
  int to_;      // where this lane's piece of the first outputs goes
  int output_;  // this lane's first
  const std::byte* source_;
  int left_;  // bytes of the part from this lane's piece on
  int stage_ = 0;
  int fill_ = 0;  // offset of the slot to fill
  int use_ = 0;
};
static_assert(WeightStream<8, 1, 1, GridWalk>::kRowsAtOnce ==
              4);  // places of outputs 4 on differ by one piece

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WEIGHT_STREAM_H_

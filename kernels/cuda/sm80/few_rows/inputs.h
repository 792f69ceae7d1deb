#ifndef ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_INPUTS_H_
#define ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_INPUTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/sm80/few_rows/weight_ring.h"
#include "kernels/cuda/sm80/few_rows/work.h"
#include "kernels/cuda/sm80/linear_weights.h"

// The inputs that a warp multiplies (tile.h): those of its part of the depth, rounded to bf16. They
// are read unit by unit, from the first to the last once for every group of outputs. In
// linear_few_rows.cu ChunkInputs serves up to 8 rows, RowInputs more. All kinds have
//   units()               the number of units in the part
//   Take(unit)            makes a unit readable. All lanes call it, with 0, 1 .. units() - 1, then
//                         from 0 again
//   Load(unit, s, rows)   reads this lane's operands of step s (0 or 1) of the unit last taken.
//                         With g = lane / 4 and t = lane % 4, rows[0] gets elements 8t .. 8t + 7 of
//                         row g and rows[1] those of row g + 8, in the order of LowOfPair. If there
//                         is no such row, it gets zeros or another row's elements

namespace annulus::cuda {

inline constexpr int kStep = static_cast<int>(kDepthStep);
inline constexpr int kUnit = 2 * kStep;  // parts are whole units, except at the end of the depth
// A warp has shared memory for this many steps of one row each, rounded.
inline constexpr int kChunkPlaces = 32;
inline constexpr int kStepBytes = kStep * 2;
inline constexpr int kInputBytes = kChunkPlaces * kStepBytes;

struct alignas(16) FourFloats {
  float values[4];
};
struct alignas(8) TwoWords {
  uint32_t words[2];
};

// Whether all rows can be read 16 bytes at a time.
ANNULUS_DEVICE bool HasAlignedFours(const ConstMatrixView& input) {
  return (reinterpret_cast<uintptr_t>(input.data) % 16 == 0) & (input.stride % 4 == 0) &
         (input.cols % 4 == 0);
}

// Loads four elements, of which `left` (at least 1) exist; the others become 0. `aligned`: the
// result of HasAlignedFours.
ANNULUS_DEVICE FourFloats LoadFour(const float* from, int left, bool aligned) {
  if (aligned) return *reinterpret_cast<const FourFloats*>(from);
  FourFloats four{};
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (e < left) four.values[e] = from[e];
  }
  return four;
}

// Elements 8t .. 8t + 7 of a step of a row.
struct EightInputs {
  FourFloats fours[2];
};
// As bf16, in the order of LowOfPair.
template <bool kFourBit>
ANNULUS_DEVICE Bytes16 RoundedPairs(const EightInputs& x) {
  Bytes16 pairs;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const int low = LowOfPair(kFourBit, p);
    const int high = HighOfPair(kFourBit, p);
    pairs.words[p] =
        Pack(BFloat16{}, x.fours[low / 4].values[low % 4], x.fours[high / 4].values[high % 4]);
  }
  return pairs;
}

// Up to 8 rows. They are in the warp's shared memory, a chunk of the part at a time: as many steps
// as fit, if the number of rows is rounded up to a power of two. The next chunk is already in
// registers. If the part is a single chunk, it is stored once for all groups.
template <bool kFourBit>
class ChunkInputs {
 public:
  // `memory`: the warp's kInputBytes.
  ANNULUS_DEVICE ChunkInputs(const Work& work, const Part& part, std::byte* memory)
      : work_(work), memory_(memory), begin_(static_cast<int>(part.begin)) {
    while (1 << shift_ < work.rows) ++shift_;
    aligned_ = HasAlignedFours(work.linear.input);
    end_ = static_cast<int>(Smaller(part.end, work.linear.input.cols));
    units_ = (static_cast<int>(part.end - part.begin) + kUnit - 1) / kUnit;
    chunk_units_ = kChunkPlaces / 2 >> shift_;
    Ask(0);
  }

  ANNULUS_DEVICE int units() const { return units_; }

  ANNULUS_DEVICE void Take(int unit) {
    if ((unit & (chunk_units_ - 1)) != 0 || kept_) return;
    SyncWarp();  // the chunk before has been read
    Store();
    SyncWarp();
    kept_ = units_ <= chunk_units_;
    if (kept_) return;
    const int next = unit + chunk_units_;
    Ask(next < units_ ? next : 0);
  }

  ANNULUS_DEVICE void Load(int unit, int s, Bytes16 (&rows)[1]) const {
    const int row = Lane() / 4 & ((1 << shift_) - 1);
    const int local = 2 * (unit & (chunk_units_ - 1)) + s;
    rows[0] = *reinterpret_cast<const Bytes16*>(memory_ + ((local << shift_) + row) * kStepBytes +
                                                Lane() % 4 * 16);
  }

 private:
  static constexpr int kOwn = kChunkPlaces * kStep / 4 / kWarp;

  // 8 lanes have a step of a row; a warp has 4 places at once.
  ANNULUS_DEVICE void Ask(int unit) {
    const ConstMatrixView& input = work_.linear.input;
    const int lane = static_cast<int>(Unhoisted(static_cast<uint32_t>(Lane())));
    const int depth = begin_ + unit * kUnit + lane % 8 * 4;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int place = 4 * i + lane / 8;
      const int row = place & ((1 << shift_) - 1);
      const int at = depth + (place >> shift_) * kStep;
      next_[i] = {};
      if (row >= work_.rows || at >= end_) continue;
      next_[i] = LoadFour(input.row(work_.Input(row)) + at, end_ - at, aligned_);
    }
  }

  // In the order of LowOfPair.
  ANNULUS_DEVICE void Store() {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const FourFloats& four = next_[i];
      TwoWords words = {Pack(BFloat16{}, four.values[0], four.values[1]),
                        Pack(BFloat16{}, four.values[2], four.values[3])};
      if constexpr (kFourBit) {
        const bool odd = Lane() % 2 != 0;
        const uint32_t other = ShuffleXor(words.words[odd ? 0 : 1], 1);
        const uint32_t low = odd ? other : words.words[0];
        const uint32_t high = odd ? words.words[1] : other;
        words = {(low & 0xffffu) | high << 16, low >> 16 | (high & 0xffff0000u)};
      }
      *reinterpret_cast<TwoWords*>(memory_ + (4 * i + Lane() / 8) * kStepBytes + Lane() % 8 * 8) =
          words;
    }
  }

  const Work& work_;
  std::byte* const memory_;
  const int begin_;  // of the part
  int end_;
  int shift_ = 0;  // log2 of the rows that a step has room for
  int units_;
  int chunk_units_;
  bool aligned_;
  bool kept_ = false;
  FourFloats next_[kOwn];
};

// More than 8 rows. Every lane loads its own operands into registers, a unit ahead. The shared
// memory has room for a single unit of so many rows, and writing it there to read it once takes
// longer (H200).
template <bool kFourBit>
class RowInputs {
 public:
  ANNULUS_DEVICE RowInputs(const Work& work, const Part& part, std::byte* /*memory*/) {
    const ConstMatrixView& input = work.linear.input;
    begin_ = static_cast<int>(part.begin) + Lane() % 4 * 8;
    end_ = static_cast<int>(Smaller(part.end, input.cols));
    units_ = (static_cast<int>(part.end - part.begin) + kUnit - 1) / kUnit;
    aligned_ = HasAlignedFours(input);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      rows_[h] = input.row(work.Input(Smaller(Lane() / 4 + 8 * h, work.rows - 1)));
    }
    Ask(0);
  }

  ANNULUS_DEVICE int units() const { return units_; }

  ANNULUS_DEVICE void Take(int unit) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) now_[s][h] = RoundedPairs<kFourBit>(next_[s][h]);
    }
    Ask(unit + 1 < units_ ? unit + 1 : 0);
  }

  ANNULUS_DEVICE void Load(int /*unit*/, int s, Bytes16 (&rows)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h] = now_[s][h];
  }

 private:
  ANNULUS_DEVICE void Ask(int unit) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int f = 0; f < 2; ++f) {
          const int at = begin_ + unit * kUnit + s * kStep + f * 4;
          FourFloats& four = next_[s][h].fours[f];
          four = {};
          if (at < end_) four = LoadFour(rows_[h] + at, end_ - at, aligned_);
        }
      }
    }
  }

  const float* rows_[2];  // g and g + 8
  int begin_;             // this lane's first element of the part
  int end_;               // of the part
  int units_;
  bool aligned_;
  Bytes16 now_[2][2];  // [step][row g or g + 8]
  EightInputs next_[2][2];
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_INPUTS_H_

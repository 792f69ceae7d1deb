// Many copies by one launch: the pages of a layer, which do not lie side by side, from another
// device's memory or into one place that is sent as a whole. With a call for each, the host would
// be what is waited for.
//
// There are few blocks, as attention runs beside them; each has kUnroll loads of 16 bytes per
// thread under way. Copies are cut into pieces, which blocks take in turn.
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/pull.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kUnroll = 4;
constexpr int64_t kBlocks = 32;
constexpr int64_t kWord = sizeof(Bytes16);
constexpr int64_t kPiece = kThreads * kUnroll * kWord;

// Words begin, begin + kThreads, .. of a piece.
ANNULUS_DEVICE void CopyPiece(const Pull& pull, int64_t begin) {
  Bytes16 words[kUnroll];
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64_t at = begin + (i * kThreads + ThreadIndex()) * kWord;
    if (at < pull.bytes) words[i] = *reinterpret_cast<const Bytes16*>(pull.from + at);
  }
#pragma unroll
  for (int i = 0; i < kUnroll; ++i) {
    const int64_t at = begin + (i * kThreads + ThreadIndex()) * kWord;
    if (at < pull.bytes) *reinterpret_cast<Bytes16*>(pull.to + at) = words[i];
  }
}

ANNULUS_KERNEL(kThreads, 2) PullKernel(ANNULUS_ARGUMENT PullArguments a) {
  int64_t turn = BlockX();  // the next piece that is this block's, among those of all copies
  for (int i = 0; i < a.count; ++i) {
    const int64_t pieces = (a.pulls[i].bytes + kPiece - 1) / kPiece;
    for (; turn < pieces; turn += kBlocks) CopyPiece(a.pulls[i], turn * kPiece);
    turn -= pieces;
  }
}

}  // namespace

int LaunchPull(StreamHandle stream, const PullArguments& arguments) {
  const Grid grid{.x = kBlocks, .threads = kThreads, .other_device = arguments.from_device};
  return Launch<PullKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda

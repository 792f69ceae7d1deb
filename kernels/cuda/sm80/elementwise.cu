// Norm, activations, rotary embedding, rows moved and routed. Bound by memory: every element is
// read and written once. Compiled without contraction of products and sums, so that a kernel gives
// the bits that its formula gives.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/sm80/elementwise.h"
#include "kernels/cuda/sm80/linear_weights.h"
#include "kernels/cuda/sm80/rows/row_blocks.h"
#include "kernels/cuda/sm80/rows/row_values.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = kRowThreads;

ANNULUS_DEVICE void NormaliseRow(const NormParams& a) {
  const float* const x = a.input.row(BlockX());
  const int64_t cols = a.output.cols;
  const RowNorm norm = NormOfRow(a.norm, x, cols);
  const float* const weight = a.weight_of(BlockX());
  float* const output = a.output.row(BlockX());
  for (int64_t i = ThreadIndex(); i < cols; i += kThreads) {
    const float value = Normalised(norm, x[i], weight[i], a.bias, i);
    output[i] = a.accumulate ? output[i] + value : value;
  }
}

ANNULUS_DEVICE void GatedMul(const GatedMulParams& a) {
  const RowPart part = PartOfRow(a.output.cols);
  for (int64_t i = part.begin; i < part.end; i += kThreads) {
    a.output.row(part.row)[i] = Gated(a, a.gate.row(part.row)[i], a.up.row(part.row)[i]);
  }
}

ANNULUS_DEVICE void Scale(const ScaleArguments& a) {
  const RowPart part = PartOfRow(a.output.cols);
  const float row_scale = a.row_scales == nullptr ? 1 : a.row_scales[part.row];
  float values[kRowElements] = {};  // all read before the first is written
  float before[kRowElements] = {};
#pragma unroll
  for (int n = 0; n < kRowElements; ++n) {
    const int64_t i = part.begin + n * kThreads;
    if (i >= part.end) break;
    values[n] = a.factor == 0 ? 0 : a.sums.row(part.row)[i] * a.factor * row_scale;
    if (a.column_scales != nullptr) values[n] *= a.column_scales[i];
    if (a.bias != nullptr) values[n] += a.bias[i];
    if (a.accumulate) before[n] = a.output.row(part.row)[i];
  }
#pragma unroll
  for (int n = 0; n < kRowElements; ++n) {
    const int64_t i = part.begin + n * kThreads;
    if (i >= part.end) break;
    if (a.cap > 0) values[n] = a.cap * tanhf(values[n] / a.cap);
    a.output.row(part.row)[i] = a.accumulate ? before[n] + values[n] : values[n];
  }
}

// A thread rotates pairs: `heads * pairs` of them in a row.
ANNULUS_DEVICE void Rotate(const RopeParams& a) {
  const int64_t pairs = a.cosine.cols;
  const RowPart part = PartOfRow(a.heads * pairs);
  for (int64_t i = part.begin; i < part.end; i += kThreads) {
    const int64_t pair = i % pairs;
    float* const x = a.values.row(part.row) + i / pairs * a.head_dim + pair;
    const float cosine = a.cosine.row(part.row)[pair];
    const float sine = a.sine.row(part.row)[pair];
    const float first = x[0];
    const float second = x[pairs];
    x[0] = first * cosine - second * sine;
    x[pairs] = second * cosine + first * sine;
  }
}

// One of three: the rotation where `rope` has values, else the gated product where `gated` has an
// output, and else scales and soft cap.
struct RowPartsArguments {
  GatedMulParams gated;
  ScaleArguments scales;
  RopeParams rope;
};

ANNULUS_KERNEL(kThreads, 8) RowPartsKernel(ANNULUS_ARGUMENT RowPartsArguments a) {
  LetNextBegin();
  WaitForEarlier();
  if (a.rope.values.data != nullptr) {
    Rotate(a.rope);
  } else if (a.gated.output.data != nullptr) {
    GatedMul(a.gated);
  } else {
    Scale(a.scales);
  }
}

ANNULUS_KERNEL(kThreads, 4) MoveRowsKernel(ANNULUS_ARGUMENT MoveRowsArguments a) {
  const RowPart part = PartOfRow(a.input.cols);
  const int64_t other = a.rows == nullptr ? part.row : a.rows[part.row];
  const int64_t first = part.row * a.together;
  for (int64_t i = part.begin; i < part.end; i += kThreads) {
    if (a.weights == nullptr) {
      a.output.row(part.row)[i] = a.input.row(other)[i];
      continue;
    }
    float sum = a.output.row(other)[i];
    for (int64_t j = first; j < first + a.together; ++j) sum += a.weights[j] * a.input.row(j)[i];
    a.output.row(other)[i] = sum;
  }
}

// A logit and its expert; `expert` < 0: none.
struct Candidate {
  float logit;
  int expert;
};

ANNULUS_DEVICE float CountedLogit(float logit) {
  return logit == logit ? logit : FloatOf(0xff800000u);  // minus infinity
}

// Whether `a` is chosen before `b`.
ANNULUS_DEVICE bool Before(const Candidate& a, const Candidate& b) {
  if (a.expert < 0 || b.expert < 0) return b.expert < 0 && a.expert >= 0;
  return a.logit > b.logit || (a.logit == b.logit && a.expert < b.expert);
}

// The first of a row's experts that comes after `last` (none: the first of all).
ANNULUS_DEVICE Candidate NextExpert(const float* logits, int experts, const Candidate& last) {
  Candidate best{0, -1};
  for (int e = Lane(); e < experts; e += kWarp) {
    const Candidate candidate{CountedLogit(logits[e]), e};
    if ((last.expert < 0 || Before(last, candidate)) && Before(candidate, best)) best = candidate;
  }
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const float logit = ShuffleXor(best.logit, mask);
    const int expert = static_cast<int>(ShuffleXor(static_cast<uint32_t>(best.expert), mask));
    const Candidate other{logit, expert};
    if (Before(other, best)) best = other;
  }
  return best;
}

ANNULUS_DEVICE float SigmoidScore(float logit) {
  return 1.0f / (1.0f + expf(-CountedLogit(logit)));
}

// Sets the keys of all experts outside the best groups to minus infinity. `sums`: [groups].
ANNULUS_DEVICE void KeepBestGroups(const RoutingRule& rule, int experts, float* keys, float* sums) {
  const int size = experts / rule.groups;
  for (int g = Lane(); g < rule.groups; g += kWarp) {
    const float* const group = keys + g * size;
    float first = group[0];
    float second = FloatOf(0xff800000u);
    for (int e = 1; e < size; ++e) {
      const float key = group[e];
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) {
        second = key;
      }
    }
    sums[g] = first + second;
  }
  SyncThreads();
  Candidate last{0, -1};
  for (int i = 0; i < rule.chosen_groups; ++i) last = NextExpert(sums, rule.groups, last);
  for (int e = Lane(); e < experts; e += kWarp) {
    const int g = e / size;
    if (Before(last, {sums[g], g})) keys[e] = FloatOf(0xff800000u);
  }
  SyncThreads();
}

// What experts are chosen by.
ANNULUS_DEVICE const float* KeysOf(const RouteParams& a, const float* logits, int experts) {
  if (a.rule.scores == RoutingRule::Scores::kSoftmax) return logits;
  auto* const keys = reinterpret_cast<float*>(SharedMemory());
  for (int e = Lane(); e < experts; e += kWarp) {
    keys[e] = SigmoidScore(logits[e]) + (a.bias == nullptr ? 0.0f : a.bias[e]);
  }
  SyncThreads();
  if (a.rule.groups > 1) KeepBestGroups(a.rule, experts, keys, keys + experts);
  return keys;
}

// One warp per row: one round per choice finds the last one, and who is chosen no later than that
// is written in the order of experts.
ANNULUS_KERNEL(kWarp, 16) RouteKernel(ANNULUS_ARGUMENT RouteParams a) {
  const float* const logits = a.logits.row(BlockX());
  const int experts = static_cast<int>(a.logits.cols);
  const bool sigmoid = a.rule.scores == RoutingRule::Scores::kSigmoid;
  const float* const keys = KeysOf(a, logits, experts);
  Candidate last{0, -1};
  float largest = 0;
  float sum = sigmoid ? 1e-20f : 0.0f;
  for (int i = 0; i < a.rule.chosen; ++i) {
    last = NextExpert(keys, experts, last);
    if (i == 0) largest = last.logit;
    sum += sigmoid ? SigmoidScore(logits[last.expert]) : expf(last.logit - largest);
  }
  if (!a.rule.normalised && sigmoid) sum = 1;
  if (!a.rule.normalised && !sigmoid) {
    sum = 0;
    for (int e = Lane(); e < experts; e += kWarp) sum += expf(CountedLogit(logits[e]) - largest);
    sum = WarpSum(sum);
  }
  int64_t place = BlockX() * a.rule.chosen;
  for (int first = 0; first < experts; first += kWarp) {
    const int e = first + Lane();
    const Candidate own{e < experts ? CountedLogit(keys[e]) : 0, e};
    const bool chosen = e < experts && !Before(last, own);
    const uint32_t lanes = Ballot(chosen);
    if (chosen) {
      const int64_t at = place + CountBits(lanes & ((1u << Lane()) - 1));
      a.experts[at] = e;
      const float score = sigmoid ? SigmoidScore(logits[e]) : expf(own.logit - largest);
      const float weight = score / sum * a.rule.scale;
      a.weights[at] = a.factors == nullptr ? weight : weight * a.factors[e];
    }
    place += CountBits(lanes);
  }
}

// The largest magnitude of a row, as bits: see LargestOfBlock.
ANNULUS_DEVICE uint32_t LargestOfRow(const float* row, int64_t cols) {
  uint32_t largest = 0;
#pragma unroll 8
  for (int64_t i = ThreadIndex(); i < cols; i += kThreads) {
    largest = Larger(largest, MagnitudeOf(row[i]));
  }
  return LargestOfBlock(largest);
}

ANNULUS_DEVICE void RoundRow(const RoundRowsArguments& a) {
  const float* const input = a.input.row(BlockX());
  const auto load = [&](int64_t i) { return i < a.input.cols ? input[i] : 0.0f; };
  auto* const pairs = static_cast<uint32_t*>(a.output) + BlockX() * (a.depth / 2);
  if (a.kind == RoundedRows::kBFloat16) {
    for (int64_t pair = ThreadIndex(); pair < a.depth / 2; pair += kThreads) {
      pairs[pair] = Pack(BFloat16{}, load(2 * pair), load(2 * pair + 1));
    }
    return;
  }
  if (a.kind == RoundedRows::kBFloat16Steps || a.kind == RoundedRows::kFourBitSteps) {
    const bool four_bit = a.kind == RoundedRows::kFourBitSteps;
    for (int64_t word = ThreadIndex(); word < a.depth / 2; word += kThreads) {
      const int p = static_cast<int>(word % 16 / 4);
      const int64_t eight = word / 16 * kDepthStep + word % 4 * 8;
      pairs[word] = Pack(BFloat16{}, load(eight + LowOfPair(four_bit, p)),
                         load(eight + HighOfPair(four_bit, p)));
    }
    return;
  }
  const uint32_t bits = LargestOfRow(input, a.input.cols);
  if (a.kind == RoundedRows::kFloat16) {
    const uint32_t exponent = Smaller(Larger(bits >> 23, 15u), 254u);
    const float factor = FloatOf((268 - exponent) << 23);
    if (ThreadIndex() == 0) a.scales[BlockX()] = FloatOf((exponent - 14) << 23);
    const auto rounded = [&](int64_t i) { return WidenBFloat16(NarrowBFloat16(load(i))) * factor; };
    for (int64_t pair = ThreadIndex(); pair < a.depth / 2; pair += kThreads) {
      pairs[pair] = Pack(Float16{}, rounded(2 * pair), rounded(2 * pair + 1));
    }
    return;
  }
  const Float8Scale scale = Float8ScaleOf(bits);
  if (ThreadIndex() == 0) a.scales[BlockX()] = scale.scale;
  for (int64_t four = ThreadIndex(); four < a.depth / 4; four += kThreads) {
    const float values[4] = {load(4 * four), load(4 * four + 1), load(4 * four + 2),
                             load(4 * four + 3)};
    StoreFourCodes(a, BlockX(), four, scale, values);
  }
}

// Rounds a row where `round` has an output, and else normalises it.
struct WholeRowsArguments {
  NormParams norm;
  RoundRowsArguments round;
};

// One block per row.
ANNULUS_KERNEL(kThreads, 8) WholeRowsKernel(ANNULUS_ARGUMENT WholeRowsArguments a) {
  LetNextBegin();
  WaitForEarlier();
  if (a.round.output != nullptr) {
    RoundRow(a.round);
  } else {
    NormaliseRow(a.norm);
  }
}

int LaunchRowParts(StreamHandle stream, int64_t rows, int64_t cols,
                   const RowPartsArguments& arguments) {
  return Launch<RowPartsKernel>(stream, Overlapping(stream, GridOfRows(rows, cols)), arguments);
}

int LaunchWholeRows(StreamHandle stream, int64_t rows, const WholeRowsArguments& arguments) {
  return Launch<WholeRowsKernel>(stream, Overlapping(stream, GridOfWholeRows(rows)), arguments);
}

}  // namespace

int LaunchNorm(StreamHandle stream, const NormParams& arguments) {
  return LaunchWholeRows(stream, arguments.output.rows, {arguments, {}});
}
int LaunchGatedMul(StreamHandle stream, const GatedMulParams& arguments) {
  return LaunchRowParts(stream, arguments.output.rows, arguments.output.cols, {arguments, {}, {}});
}
int LaunchScale(StreamHandle stream, const ScaleArguments& arguments) {
  return LaunchRowParts(stream, arguments.output.rows, arguments.output.cols, {{}, arguments, {}});
}
int LaunchRope(StreamHandle stream, const RopeParams& arguments) {
  return LaunchRowParts(stream, arguments.cosine.rows, arguments.heads * arguments.cosine.cols,
                        {{}, {}, arguments});
}
int LaunchMoveRows(StreamHandle stream, const MoveRowsArguments& arguments) {
  return Launch<MoveRowsKernel>(stream, GridOfRows(arguments.count, arguments.input.cols),
                                arguments);
}
int LaunchRoundRows(StreamHandle stream, const RoundRowsArguments& arguments) {
  return LaunchWholeRows(stream, arguments.input.rows, {{}, arguments});
}
int LaunchRoute(StreamHandle stream, const RouteParams& arguments) {
  const bool sigmoid = arguments.rule.scores == RoutingRule::Scores::kSigmoid;
  const int64_t keys = sigmoid ? arguments.logits.cols + arguments.rule.groups : 0;
  return Launch<RouteKernel>(stream,
                             {.x = arguments.logits.rows,
                              .threads = kWarp,
                              .shared_bytes = static_cast<size_t>(keys) * sizeof(float)},
                             arguments);
}

}  // namespace annulus::cuda

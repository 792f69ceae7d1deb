// Choice of tokens. A block has one row: first its edits, in place, and the greatest logit, then
// weights in the place of the logits, then what top_k, top_p and min_p keep, and the draw.
//
// No sorting: all that is kept is a beginning of the order of preference (greater weight first, of
// equal ones the lower id), so it is known by its last token. That token is found by its weight's
// bits, kDigitBits at a time from the highest: every thread sums its candidates by their next digit
// into a column of shared memory of its own, in float64 and in a fixed order, and the digit is the
// one at which the sum from above reaches the target. Of equal weights the token is found by id.
// Weights are at most 1, so their bits have kKeyBits and are ordered as they are.
#include <cmath>

#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/sampling.h"

namespace annulus::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kKeyBits = 30;
constexpr int kDigitBits = 5;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kShares = kThreads / kDigits;  // threads that add up the columns of one digit
constexpr int32_t kEveryId = 0x7fffffff;
static_assert(kKeyBits % kDigitBits == 0);
static_assert(kThreads % kDigits == 0);

// What is kept: keys above `key`, and of those equal to it the ids up to `id`.
struct Kept {
  uint32_t key = 0;
  int32_t id = kEveryId;

  ANNULUS_DEVICE bool Holds(uint32_t other, int64_t token) const {
    return other > key || (other == key && token <= id);
  }
};

// A point of the sums: `target` is reached by a sum of at least, or if `beyond` of more than it.
struct Target {
  double sum;
  bool beyond;

  ANNULUS_DEVICE bool ReachedBy(double reached) const {
    return beyond ? reached > sum : reached >= sum;
  }
};

struct Best {
  float value;
  int32_t id;  // -1: no logit above -inf
};

struct SampleShared {
  double columns[kDigits][kThreads];
  double shares[kDigits][kShares];
  double sums[kThreads];
  // What one thread found, for all.
  double above;
  int32_t found;
  Best best[kThreads];
};

ANNULUS_DEVICE SampleShared& Shared() { return *reinterpret_cast<SampleShared*>(SharedMemory()); }

// Takes out what is not allowed, and tells the calling thread whether it met a token there that
// could have been chosen.
ANNULUS_DEVICE bool KeepAllowed(float* logits, int64_t count, const SampleRow& how) {
  if (how.allowed.empty()) return false;
  const uint32_t* const allowed = how.allowed.data();
  bool excluded = false;
  for (uint32_t i = ThreadIndex(); i < count; i += kThreads) {
    if ((allowed[i / 32] >> i % 32 & 1) != 0) continue;
    excluded |= ReadLogit(logits[i]) > kExcludedLogit;
    logits[i] = kExcludedLogit;
  }
  SyncThreads();  // other threads have the edits of these tokens
  return excluded;
}

// Whether a token was excluded that could have been chosen, for all threads. No token is in both
// lists, so threads do not meet.
ANNULUS_DEVICE bool Adjust(float* logits, int64_t count, const SampleRow& how) {
  bool excluded = KeepAllowed(logits, count, how);
  const LogitEdit* const edits = how.edits.data();
  const uint32_t* const seen = how.seen.data();
  const int64_t edited = static_cast<int64_t>(how.edits.size());
  if (edited == 0 && how.seen.empty() && how.allowed.empty()) return false;
  for (int64_t i = ThreadIndex(); i < edited; i += kThreads) {
    const LogitEdit edit = edits[i];
    const float before = ReadLogit(logits[edit.token]);
    const float after = AdjustedLogit(before, edit, how.penalties);
    logits[edit.token] = after;
    excluded |= after == kExcludedLogit && before != after;
  }
  const int64_t tokens = how.seen.empty() ? 0 : count;
  for (uint32_t i = ThreadIndex(); i < tokens; i += kThreads) {
    if ((seen[i / 32] >> i % 32 & 1) == 0) continue;
    logits[i] = AdjustedLogit(logits[i], {.count = 0}, how.penalties);
  }
  return SyncThreadsOr(excluded);
}

ANNULUS_DEVICE bool Precedes(const Best& a, const Best& b) {
  if (a.id < 0 || b.id < 0) return b.id < 0 && a.id >= 0;
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The first in the order of preference, for all threads.
ANNULUS_DEVICE Best FindBest(const float* logits, int64_t count) {
  SampleShared& shared = Shared();
  Best best{kExcludedLogit, -1};
  for (int64_t i = ThreadIndex(); i < count; i += kThreads) {
    const float value = ReadLogit(logits[i]);
    if (value > best.value) best = {value, static_cast<int32_t>(i)};
  }
  shared.best[ThreadIndex()] = best;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    SyncThreads();
    if (ThreadIndex() >= half) continue;
    const Best other = shared.best[ThreadIndex() + half];
    if (Precedes(other, best)) shared.best[ThreadIndex()] = best = other;
  }
  SyncThreads();
  return shared.best[0];
}

// logits become weights, as ToWeights of kernels/base/candidates.h makes them.
ANNULUS_DEVICE void MakeWeights(float* logits, int64_t count, float maximum, float temperature) {
  for (int64_t i = ThreadIndex(); i < count; i += kThreads) {
    const double distance = static_cast<double>(ReadLogit(logits[i])) - maximum;
    logits[i] = static_cast<float>(exp(distance / temperature));
  }
  SyncThreads();
}

// The sum over all threads, for all.
ANNULUS_DEVICE double SumOfThreads(double own) {
  SampleShared& shared = Shared();
  shared.sums[ThreadIndex()] = own;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    SyncThreads();
    if (ThreadIndex() < half) shared.sums[ThreadIndex()] += shared.sums[ThreadIndex() + half];
  }
  SyncThreads();
  const double sum = shared.sums[0];
  SyncThreads();  // before the next use
  return sum;
}

ANNULUS_DEVICE double TotalOf(const float* weights, int64_t count, const Kept& kept) {
  double sum = 0;
  for (int64_t i = ThreadIndex(); i < count; i += kThreads) {
    if (kept.Holds(BitsOf(weights[i]), i)) sum += weights[i];
  }
  return SumOfThreads(sum);
}

// The first i in ascending order at which the sum of `before`, measure(0), .., measure(i) reaches
// the target; if none does, the last whose measure is above 0. Each thread has a run of tokens.
template <class Measure>
ANNULUS_DEVICE int32_t FindById(int64_t count, const Target& target, double before,
                                const Measure& measure) {
  SampleShared& shared = Shared();
  const int64_t run = (count + kThreads - 1) / kThreads;
  const int64_t begin = ThreadIndex() * run;
  const int64_t end = Smaller(begin + run, count);
  double own = 0;
  for (int64_t i = begin; i < end; ++i) own += measure(i);
  shared.sums[ThreadIndex()] = own;
  SyncThreads();
  if (ThreadIndex() == 0) {
    double reached = before;
    for (int t = 0; t < kThreads; ++t) {
      if (shared.sums[t] <= 0) continue;
      shared.found = t;
      shared.above = reached;
      reached += shared.sums[t];
      if (target.ReachedBy(reached)) break;
    }
  }
  SyncThreads();
  const int finder = shared.found;
  double reached = shared.above;
  SyncThreads();
  if (ThreadIndex() == finder) {
    for (int64_t i = begin; i < end; ++i) {
      const double value = measure(i);
      if (value <= 0) continue;
      shared.found = static_cast<int32_t>(i);
      reached += value;
      if (target.ReachedBy(reached)) break;
    }
  }
  SyncThreads();
  const int32_t found = shared.found;
  SyncThreads();
  return found;
}

// The columns' sums by digit; the first 32 threads have that of their digit.
ANNULUS_DEVICE double SumOfDigit() {
  SampleShared& shared = Shared();
  SyncThreads();
  const int digit = ThreadIndex() / kShares;
  const int share = ThreadIndex() % kShares;
  double sum = 0;
  for (int i = share; i < kThreads; i += kShares) sum += shared.columns[digit][i];
  shared.shares[digit][share] = sum;
  SyncThreads();
  sum = 0;
  if (ThreadIndex() < kDigits) {
    for (int i = 0; i < kShares; ++i) sum += shared.shares[ThreadIndex()][i];
  }
  return sum;
}

// Chooses the digit, from the highest, at which `above` and the sums reach the target; if none
// does, the lowest with a sum. `above` becomes what lies above that digit.
ANNULUS_DEVICE int ChooseDigit(const Target& target, double& above) {
  SampleShared& shared = Shared();
  const double own = SumOfDigit();
  if (ThreadIndex() < kDigits) shared.sums[ThreadIndex()] = own;
  SyncThreads();
  if (ThreadIndex() == 0) {
    double reached = above;
    for (int digit = kDigits - 1; digit >= 0; --digit) {
      if (shared.sums[digit] <= 0) continue;
      shared.found = digit;
      shared.above = reached;
      reached += shared.sums[digit];
      if (target.ReachedBy(reached)) break;
    }
  }
  SyncThreads();
  above = shared.above;
  const int found = shared.found;
  SyncThreads();
  return found;
}

// Of those kept, the first in the order of preference at which the sum of their measures reaches
// the target: their number if kCounted, else their weights.
template <bool kCounted>
ANNULUS_DEVICE Kept FindInOrder(const float* weights, int64_t count, const Kept& kept,
                                const Target& target) {
  SampleShared& shared = Shared();
  uint32_t key = 0;
  double above = 0;
  for (int shift = kKeyBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    for (int digit = 0; digit < kDigits; ++digit) shared.columns[digit][ThreadIndex()] = 0;
    for (int64_t i = ThreadIndex(); i < count; i += kThreads) {
      const uint32_t bits = BitsOf(weights[i]);
      if (bits >> (shift + kDigitBits) != key >> (shift + kDigitBits)) continue;
      if (!kept.Holds(bits, i)) continue;
      const double measure = kCounted ? 1 : static_cast<double>(weights[i]);
      shared.columns[bits >> shift & (kDigits - 1)][ThreadIndex()] += measure;
    }
    key |= static_cast<uint32_t>(ChooseDigit(target, above)) << shift;
  }
  const double each = kCounted ? 1 : static_cast<double>(FloatOf(key));
  const int32_t id = FindById(count, target, above, [&](int64_t i) {
    return BitsOf(weights[i]) == key && kept.Holds(key, i) ? each : 0.0;
  });
  return {key, id};
}

ANNULUS_KERNEL(kThreads, 1) SampleKernel(ANNULUS_ARGUMENT SampleArguments a) {
  const SampleRow how = a.rows[BlockX()];
  float* const weights = a.logits.row(BlockX());
  const int64_t count = a.logits.cols;
  const bool excluded = Adjust(weights, count, how);
  const Best best = FindBest(weights, count);
  int32_t token = best.id;
  if (best.id < 0) token = excluded ? kAllExcluded : kNoUsableLogit;
  if (best.id >= 0 && how.temperature > 0) {
    MakeWeights(weights, count, best.value, how.temperature);
    Kept kept;
    const bool few = how.top_k > 0 && how.top_k < count;
    const bool in_order = few || how.top_p < 1;
    if (few) {
      kept = FindInOrder<true>(weights, count, kept, {static_cast<double>(how.top_k), false});
    }
    if (how.top_p < 1) {
      const double wanted = how.top_p * TotalOf(weights, count, kept);
      kept = FindInOrder<false>(weights, count, kept, {wanted, false});
    }
    if (how.min_p > FloatOf(kept.key)) kept = {BitsOf(how.min_p), kEveryId};
    const Target drawn{how.uniform * TotalOf(weights, count, kept), true};
    if (in_order) {
      token = FindInOrder<false>(weights, count, kept, drawn).id;
    } else {
      token = FindById(count, drawn, 0, [&](int64_t i) {
        return kept.Holds(BitsOf(weights[i]), i) ? static_cast<double>(weights[i]) : 0.0;
      });
    }
  }
  if (ThreadIndex() == 0) a.tokens[BlockX()] = token;
}

}  // namespace

int LaunchSample(StreamHandle stream, const SampleArguments& arguments) {
  const Grid grid{
      .x = arguments.logits.rows, .threads = kThreads, .shared_bytes = sizeof(SampleShared)};
  return Launch<SampleKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda

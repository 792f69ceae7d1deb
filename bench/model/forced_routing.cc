#include "bench/model/forced_routing.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/register.h"
#include "kernels/cpu/register_entries.h"
#include "kernels/ops/checks.h"

namespace annulus::bench {
namespace {

// The output function of SplitMix64 (Steele, Lea and Flood 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

uint64_t SeedOf(std::span<const float> logits) {
  uint64_t seed = 0;
  for (const float logit : logits) seed = Mix(seed + kGolden + std::bit_cast<uint32_t>(logit));
  return seed;
}

// In (0, 1).
double Uniform(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

// From 1 on. A prime that is larger than any number of experts shares no factor with it, so that
// every expert has a rank of its own, and neighbours are far from each other.
int64_t RankOf(int64_t expert, int64_t experts) {
  constexpr int64_t kPrime = 7919;
  static_assert(kPrime > kMostExperts);
  return (expert * kPrime + kPrime / 2) % experts + 1;
}

template <ForcedRouting kRouting>
double WeightOf(int64_t expert, int64_t experts) {
  if constexpr (kRouting == ForcedRouting::kUniform) return 1;
  return 1 / static_cast<double>(RankOf(expert, experts));
}

// Clocks that ring after exponential times ring in the order of such draws (Efraimidis and
// Spirakis 2006, weighted sampling without replacement).
template <ForcedRouting kRouting>
void DrawRow(std::span<const float> logits, std::span<int32_t> chosen) {
  const auto experts = static_cast<int64_t>(logits.size());
  const uint64_t seed = SeedOf(logits);
  std::array<double, kMostExperts> times;
  std::array<int32_t, kMostExperts> order;
  std::iota(order.begin(), order.begin() + experts, 0);
  for (int64_t e = 0; e < experts; ++e) {
    const uint64_t bits = Mix(seed + kGolden * static_cast<uint64_t>(e + 1));
    times[e] = -std::log(Uniform(bits)) / WeightOf<kRouting>(e, experts);
  }
  std::partial_sort(order.begin(), order.begin() + std::ssize(chosen), order.begin() + experts,
                    [&](int32_t a, int32_t b) { return times[a] < times[b]; });
  std::copy_n(order.begin(), chosen.size(), chosen.begin());
  std::sort(chosen.begin(), chosen.end());
}

template <ForcedRouting kRouting>
absl::Status Route(Stream&, const RouteParams& params) {
  CheckRoute(params);
  const auto chosen = static_cast<size_t>(params.rule.chosen);
  for (int64_t r = 0; r < params.logits.rows; ++r) {
    const size_t first = static_cast<size_t>(r) * chosen;
    DrawRow<kRouting>({params.logits.row(r), static_cast<size_t>(params.logits.cols)},
                      {params.experts + first, chosen});
    std::fill_n(params.weights + first, chosen, params.rule.scale / static_cast<float>(chosen));
  }
  return absl::OkStatus();
}

}  // namespace

absl::string_view ForcedRoutingName(ForcedRouting routing) {
  return routing == ForcedRouting::kZipf ? "zipf" : "uniform";
}

void RegisterForcedKernels(ForcedRouting routing, KernelRegistry& registry) {
  KernelRegistry plain;
  RegisterCpuKernels(plain);
  const std::vector<const OpTable*> tables = plain.Available("cpu");
  int priority = static_cast<int>(tables.size());
  for (const OpTable* const table : tables) {
    OpTable ops = *table;
    ops.route = routing == ForcedRouting::kZipf ? Route<ForcedRouting::kZipf>
                                                : Route<ForcedRouting::kUniform>;
    registry.Register(CpuEntry(std::move(ops), --priority));
  }
}

}  // namespace annulus::bench

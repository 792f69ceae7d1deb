#include "engine/exchange/find_exchange.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/exchange/exchange_profile.h"
#include "engine/runner/rank_set.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

ExchangeSetup ExchangeSetupOf(const EngineOptions& options, const RankModel& model,
                              Backend& backend) {
  std::string device = backend.capabilities().description;
  if (const int devices = DevicesOf(backend, options.span().local); devices > 1) {
    absl::StrAppend(&device, ", ", devices, " devices, transport ",
                    static_cast<int>(options.ring_transport));
  }
  return {.device = std::move(device),
          .kernels = model.ops->name,
          .ranks = options.ranks,
          .threads = options.threads,
          .attention = {.heads = WidestAttention(model.config).heads, .page = model.page_shape},
          .transport = options.ring_transport};
}

FoundExchange FixedMode() { return {ExchangeRates(), "not needed: the mode is fixed"}; }

// "12 ms", since `start`.
std::string TimeSince(SteadyTime start) {
  const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
  return absl::StrCat(static_cast<int64_t>(std::ceil(seconds * 1000)), " ms");
}

}  // namespace

absl::StatusOr<FoundExchange> FindExchange(const EngineOptions& options, const RankModel& model,
                                           Backend& backend) {
  const ExchangeRates unused;
  if (options.ranks == 1) return FoundExchange{unused, "not needed: there is only one rank"};
  if (options.ring_mode != RingMode::kAuto) return FixedMode();
  const ExchangeSetup setup = ExchangeSetupOf(options, model, backend);
  if (!options.profile.empty()) {
    const absl::StatusOr<ExchangeRates> saved = LoadExchangeProfile(options.profile, setup);
    if (saved.ok()) return FoundExchange{*saved, absl::StrCat("read from ", options.profile)};
    if (!absl::IsNotFound(saved.status())) return saved.status();
  }
  const SteadyTime start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(const ExchangeRates rates, MeasureExchange(setup, *model.ops, backend));
  std::string source = absl::StrCat("measured at start in ", TimeSince(start));
  if (!options.profile.empty()) {
    ANNULUS_RETURN_IF_ERROR(SaveExchangeProfile(options.profile, setup, rates));
    absl::StrAppend(&source, ", saved in ", options.profile);
  }
  return FoundExchange{rates, std::move(source)};
}

absl::StatusOr<FoundExchange> FindExchangeOfProcesses(const EngineOptions& options, int local_ranks,
                                                      const RankModel& model, Backend& backend) {
  if (options.ring_mode != RingMode::kAuto) return FixedMode();
  ExchangeSetup setup = ExchangeSetupOf(options, model, backend);
  setup.ranks = 1;
  setup.threads = std::max(1, options.threads / std::max(1, local_ranks));
  const SteadyTime start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(const ExchangeRates rates, MeasureAttention(setup, *model.ops, backend));
  return FoundExchange{rates, absl::StrCat("attention measured at start in ", TimeSince(start),
                                           ", links whenever the ring forms")};
}

}  // namespace annulus

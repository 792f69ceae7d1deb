#include "engine/exchange/find_exchange.h"

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

}  // namespace

absl::StatusOr<FoundExchange> FindExchange(const EngineOptions& options, const RankModel& model,
                                           Backend& backend) {
  const ExchangeRates unused;
  if (options.ranks == 1) return FoundExchange{unused, "not needed: there is only one rank"};
  if (options.ring_mode != RingMode::kAuto) {
    return FoundExchange{unused, "not needed: the mode is fixed"};
  }
  const ExchangeSetup setup = ExchangeSetupOf(options, model, backend);
  if (!options.profile.empty()) {
    const absl::StatusOr<ExchangeRates> saved = LoadExchangeProfile(options.profile, setup);
    if (saved.ok()) return FoundExchange{*saved, absl::StrCat("read from ", options.profile)};
    if (!absl::IsNotFound(saved.status())) return saved.status();
  }
  const SteadyTime start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(const ExchangeRates rates, MeasureExchange(setup, *model.ops, backend));
  const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
  std::string source =
      absl::StrCat("measured at start in ", static_cast<int64_t>(std::ceil(seconds * 1000)), " ms");
  if (!options.profile.empty()) {
    ANNULUS_RETURN_IF_ERROR(SaveExchangeProfile(options.profile, setup, rates));
    absl::StrAppend(&source, ", saved in ", options.profile);
  }
  return FoundExchange{rates, std::move(source)};
}

}  // namespace annulus

#ifndef ANNULUS_ENGINE_EXCHANGE_FIND_EXCHANGE_H_
#define ANNULUS_ENGINE_EXCHANGE_FIND_EXCHANGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/api/options.h"
#include "engine/exchange/measure_exchange.h"
#include "engine/runner/rank_model.h"
#include "kernels/backend.h"

namespace annulus {

struct FoundExchange {
  ExchangeRates rates;
  std::string source;  // in words, for `annulus status`: "read from FILE"
};

// Returns the exchange rates that ring modes are chosen by. If the file options.profile exists,
// reads them from it; otherwise measures them, and writes that file if one is named. If nothing is
// chosen by them (one rank, or a fixed mode), returns the default rates. `options`: settled.
// Errors: those of LoadExchangeProfile except NOT_FOUND, of MeasureExchange and of
// SaveExchangeProfile.
absl::StatusOr<FoundExchange> FindExchange(const EngineOptions& options, const RankModel& model,
                                           Backend& backend);

// The same for a ring of several processes, of which this one has `local_ranks` ranks: measures
// attention, as if every rank had as many threads as those here. Links are measured by RemoteRanks
// (RankPort::links). options.profile does not count.
absl::StatusOr<FoundExchange> FindExchangeOfProcesses(const EngineOptions& options, int local_ranks,
                                                      const RankModel& model, Backend& backend);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_EXCHANGE_FIND_EXCHANGE_H_

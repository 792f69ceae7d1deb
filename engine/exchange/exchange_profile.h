#ifndef ANNULUS_ENGINE_EXCHANGE_EXCHANGE_PROFILE_H_
#define ANNULUS_ENGINE_EXCHANGE_EXCHANGE_PROFILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/exchange/measure_exchange.h"

namespace annulus {

// Exchange rates in a small JSON file, so that a start need not measure them. The file says what it
// was measured on; it serves only the same setup.

// NOT_FOUND: there is no such file. INVALID_ARGUMENT: it is no profile, or a value is not allowed.
// FAILED_PRECONDITION: it belongs to another setup, or is no regular file. Messages name the file
// and the key.
absl::StatusOr<ExchangeRates> LoadExchangeProfile(const std::string& path,
                                                  const ExchangeSetup& setup);

// Writes beside the file and renames, so that a reader sees all or nothing.
absl::Status SaveExchangeProfile(const std::string& path, const ExchangeSetup& setup,
                                 const ExchangeRates& rates);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_EXCHANGE_EXCHANGE_PROFILE_H_

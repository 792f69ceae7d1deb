#ifndef ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_
#define ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"
#include "server/config/server_config.h"

namespace annulus::server {

enum class Action : uint8_t {
  kServe,
  kCheck,
  kPlan,
  kConvert,
  kPrintConfig,
  kHashToken,
  kDoctor,
  kHelp,
  kManual,
  kVersion
};

struct CommandLine {
  Action action = Action::kServe;
  ServerConfig config;  // not set for kHelp, kManual and kVersion
  OptionTexts texts;    // the texts from which `config` was parsed; not set for the same
};

// Names and values of environment variables.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the variables of this process whose names begin with ANNULUS_. Apart from the variables
// of service managers (admin_address.h, notify_address.h), the daemon reads no others.
Environment ReadEnvironment();

// Merges the sources: flags override variables, variables override the YAML file, and the file
// overrides the defaults. `arguments` does not include the program's name. Errors are
// INVALID_ARGUMENT (NOT_FOUND if a file cannot be read), name the source ("--ranks",
// "ANNULUS_RANKS", "annulus.yaml:3: ranks") and say what is allowed; for an unknown name they
// suggest the nearest known one. Ignores ANNULUS_ variables of other programs: ANNULUS_SERVER,
// ANNULUS_TOKEN and ANNULUS_PROFILE of the client, those of the tests, and the links that
// Kubernetes injects for a service with this name.
absl::StatusOr<CommandLine> LoadConfig(const std::vector<std::string>& arguments,
                                       const Environment& environment);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_

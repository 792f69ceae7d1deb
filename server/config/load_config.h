#ifndef ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_
#define ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/config/options.h"
#include "server/config/server_config.h"

namespace annulus {

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
  ServerConfig config;  // for all that do more than print
  OptionTexts texts;    // what the configuration was made of, for the same
};

// Names and values of variables, as the process was given them.
using Environment = std::vector<std::pair<std::string, std::string>>;

// The variables of this process whose names begin with ANNULUS_. The only place in the daemon that
// reads the environment, but for what a service manager says (notify_address.h).
Environment ReadEnvironment();

// Merges the three sources: a flag beats a variable, a variable beats the YAML file, and the file
// beats the defaults. `arguments` leaves out the program's name. Every error is INVALID_ARGUMENT
// (or NOT_FOUND for an unreadable file), names the source ("--ranks", "ANNULUS_RANKS",
// "annulus.yaml:3: ranks") and says what is allowed; an unknown name is answered with the nearest
// known one. An ANNULUS_ variable that belongs to another program (the client, the tests, or the
// links that Kubernetes injects for a service of that name) is passed over.
absl::StatusOr<CommandLine> LoadConfig(const std::vector<std::string>& arguments,
                                       const Environment& environment);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_LOAD_CONFIG_H_

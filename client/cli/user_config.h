#ifndef ANNULUS_CLIENT_CLI_USER_CONFIG_H_
#define ANNULUS_CLIENT_CLI_USER_CONFIG_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace annulus {

// One key of the user's file.
struct UserSetting {
  std::string key;  // the flag of that name, without dashes before it
  std::vector<std::string> values;
  int line = 0;
};

// $XDG_CONFIG_HOME/annulus/config.yaml, else ~/.config/annulus/config.yaml; empty without a home.
std::string UserConfigPath(const Environment& environment);

// What the file says, with the settings of a profile in place of those of the same key: `profile`,
// or if that is empty the one that the file names. No file: no settings. INVALID_ARGUMENT, with
// path and line, for a file that cannot be read or is wrong, and for a profile that is not there.
absl::StatusOr<std::vector<UserSetting>> ReadUserConfig(const std::string& path,
                                                        const std::string& profile);

// The command line with the settings as further flags, where neither it nor a variable of the
// environment says otherwise. `app` has parsed `arguments`. A setting that the command does not
// take is left out; INVALID_ARGUMENT if no command takes it.
absl::StatusOr<std::vector<std::string>> WithSettings(const std::string& path,
                                                      const std::vector<UserSetting>& settings,
                                                      const CLI::App& app,
                                                      const Environment& environment,
                                                      std::vector<std::string> arguments);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_USER_CONFIG_H_

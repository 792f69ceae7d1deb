#ifndef ANNULUS_CLIENT_CLI_LINE_USER_CONFIG_H_
#define ANNULUS_CLIENT_CLI_LINE_USER_CONFIG_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/session.h"

namespace annulus::client {

// One key of the user's configuration file.
struct UserSetting {
  std::string key;  // name of a flag, without the dashes before it
  std::vector<std::string> values;
  int line = 0;  // from 1
};

// Returns $XDG_CONFIG_HOME/annulus/config.yaml, else ~/.config/annulus/config.yaml; empty if
// neither variable is set.
std::string UserConfigPath(const Environment& environment);

// Whether the file lies in a folder that this user may not search, for example another user's home,
// so that nobody can tell whether it exists.
bool IsOutOfReach(const std::string& path);

// Reads the file's settings. The settings of a profile, either `profile` or if that is empty the
// file's own choice, override those outside of profiles. If there is no file, or if its folder may
// not be searched (see IsOutOfReach) and no profile is asked for, returns no settings.
// INVALID_ARGUMENT, with path and line, if the file is wrong or the profile does not exist; errors
// of LoadFile if the file cannot be read.
absl::StatusOr<std::vector<UserSetting>> ReadUserConfig(const std::string& path,
                                                        const std::string& profile);

// Returns `arguments`, which `app` must have parsed, with the settings added as flags. Flags and
// environment variables override settings. Leaves out settings that the chosen command does not
// take; INVALID_ARGUMENT if no command takes a setting, or if its value has the wrong form.
absl::StatusOr<std::vector<std::string>> WithSettings(const std::string& path,
                                                      const std::vector<UserSetting>& settings,
                                                      const CLI::App& app,
                                                      const Environment& environment,
                                                      std::vector<std::string> arguments);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_USER_CONFIG_H_

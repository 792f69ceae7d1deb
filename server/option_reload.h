#ifndef ANNULUS_SERVER_OPTION_RELOAD_H_
#define ANNULUS_SERVER_OPTION_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/load_config.h"
#include "server/log/log.h"

namespace annulus::server {

// Reads the configuration again while the daemon serves, and puts the options into effect that have
// `reloads` in the option table. Not thread-safe.
class OptionReload {
 public:
  // `arguments` is the command line from which `in_effect` was read. `log` must outlive this
  // object.
  OptionReload(std::vector<std::string> arguments, OptionTexts in_effect, Logger& log);

  // Logs options_reloaded with the changed options: those put into effect, and those that need a
  // restart (these again at every reload, as long as they differ). If the configuration cannot be
  // read, logs reload_failed and changes nothing.
  void Reload();

 private:
  const std::vector<std::string> arguments_;
  OptionTexts in_effect_;
  Logger& log_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_OPTION_RELOAD_H_

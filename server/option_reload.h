#ifndef ANNULUS_SERVER_OPTION_RELOAD_H_
#define ANNULUS_SERVER_OPTION_RELOAD_H_

#include <string>
#include <vector>

#include "server/config/load_config.h"
#include "server/log.h"

namespace annulus {

// Reads the configuration again while the daemon serves, and puts into effect what the option table
// marks with `reloads`. One thread at a time.
class OptionReload {
 public:
  // `arguments` are those of the command line, which `in_effect` was read from. `log` must outlive
  // this object.
  OptionReload(std::vector<std::string> arguments, OptionTexts in_effect, Logger& log);

  // Logs options_reloaded with the options that differ: those taken, and those that need a restart,
  // each time as long as they differ. A configuration that cannot be read is logged as
  // reload_failed and changes nothing.
  void Reload();

 private:
  const std::vector<std::string> arguments_;
  OptionTexts in_effect_;
  Logger& log_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_OPTION_RELOAD_H_

#include "server/option_reload.h"

#include <utility>

#include "absl/strings/str_join.h"
#include "server/config/options.h"

namespace annulus::server {

OptionReload::OptionReload(std::vector<std::string> arguments, OptionTexts in_effect, Logger& log)
    : arguments_(std::move(arguments)), in_effect_(std::move(in_effect)), log_(log) {}

void OptionReload::Reload() {
  const absl::StatusOr<CommandLine> again = LoadConfig(arguments_, ReadEnvironment());
  if (!again.ok()) {
    return log_.Error(
        "reload_failed",
        {{"reason", again.status().message()},
         {"remedy", "fix it and send SIGHUP again; the earlier options stay in effect"}});
  }
  std::vector<std::string> taken;
  std::vector<std::string> need_restart;
  for (const Option* option : DifferingOptions(in_effect_, again->texts)) {
    (option->reloads ? taken : need_restart).push_back(option->name);
    if (option->reloads) in_effect_[option] = TextOf(again->texts, *option);
  }
  log_.SetLevel(again->config.log_level);
  if (taken.empty() && need_restart.empty()) return;
  log_.Info("options_reloaded",
            {LogField::IfAny("taken", absl::StrJoin(taken, ",")),
             LogField::IfAny("need_restart", absl::StrJoin(need_restart, ","))});
}

}  // namespace annulus::server

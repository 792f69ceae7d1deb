#include "client/cli/chat/line_source.h"

#include "absl/strings/strip.h"

namespace annulus::client {

std::optional<std::string> StreamLines::Next(const std::string& /*prompt*/) {
  std::string line;
  if (!std::getline(in_, line)) return std::nullopt;
  return std::string(absl::StripSuffix(line, "\r"));
}

}  // namespace annulus::client

#include "client/cli/input/json_input.h"

#include "client/format/text.h"

namespace annulus::client {

std::optional<nlohmann::ordered_json> ParseJson(const std::string& text) {
  constexpr int kDeepest = 32;
  if (FindInvalidUtf8(text).has_value()) return std::nullopt;
  bool too_deep = false;
  const auto keep = [&](int depth, nlohmann::ordered_json::parse_event_t /*event*/,
                        nlohmann::ordered_json& /*parsed*/) {
    too_deep = too_deep || depth > kDeepest;
    return !too_deep;
  };
  nlohmann::ordered_json json =
      nlohmann::ordered_json::parse(text, keep, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded()) return std::nullopt;
  return json;
}

}  // namespace annulus::client

#ifndef ANNULUS_CLIENT_CLI_INPUT_JSON_INPUT_H_
#define ANNULUS_CLIENT_CLI_INPUT_JSON_INPUT_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace annulus::client {

// Parses untrusted JSON and keeps the order of keys. nullopt if the text is not JSON in UTF-8, or
// is nested more than 32 levels deep, because copying and printing the value are recursive.
std::optional<nlohmann::ordered_json> ParseJson(const std::string& text);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_INPUT_JSON_INPUT_H_

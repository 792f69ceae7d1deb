#ifndef ANNULUS_CLIENT_CLI_JSON_INPUT_H_
#define ANNULUS_CLIENT_CLI_JSON_INPUT_H_

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace annulus {

// Parses JSON that somebody else wrote; keys keep their order. Nothing for what is not JSON in
// UTF-8, and for what is nested deeper than 32: copying and writing take the stack.
std::optional<nlohmann::ordered_json> ParseJson(const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_JSON_INPUT_H_

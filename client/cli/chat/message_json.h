#ifndef ANNULUS_CLIENT_CLI_CHAT_MESSAGE_JSON_H_
#define ANNULUS_CLIENT_CLI_CHAT_MESSAGE_JSON_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "client/format/json.h"

namespace annulus::client {

enum class AbsentField { kLeftOut, kNull };

// Returns what protobuf's JSON printer makes of `message`, in the form that users of --json know:
// - Members have the names of the .proto file, in the order of its declarations. Map keys are
//   sorted.
// - Fields that have their defaults are there. An absent `optional` field is left out or null, as
//   `absent` says; an absent message is left out.
// - int64 is a number, where protobuf prints a string. uint64 stays a string, because many JSON
//   readers hold numbers as doubles and would round a seed.
// - An enum is its EnumText, bytes are base64, and a number that is not finite is null.
nlohmann::ordered_json MessageJson(const google::protobuf::Message& message,
                                   AbsentField absent = AbsentField::kLeftOut);

// Returns the name of an enum's value in lower case without the enum's prefix: "later" for
// FIT_LATER. "unknown" for the unspecified value and for values that only newer servers have.
std::string EnumText(const google::protobuf::EnumDescriptor& type, int value);

// Adds the member `key` to `object`, behind the member `before`, which must exist.
void InsertAfter(const std::string& before, const std::string& key, nlohmann::ordered_json value,
                 nlohmann::ordered_json& object);

// Writes `value` as the next value of `json`.
void WriteJson(const nlohmann::ordered_json& value, JsonWriter& json);

// Adds the members of `object` to the object that `json` is in.
void WriteMembers(const nlohmann::ordered_json& object, JsonWriter& json);

// Returns `value` on a line of its own, with the newline.
std::string JsonLine(const nlohmann::ordered_json& value);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_MESSAGE_JSON_H_

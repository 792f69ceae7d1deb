#include "client/cli/batch/batch_line.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "client/cli/input/json_input.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

using BatchJson = nlohmann::ordered_json;

constexpr std::array<const char*, 9> kOwnKeys = {"id",       "question",  "prompt",
                                                 "messages", "documents", "system",
                                                 "model",    "attention", "coverage"};

std::vector<std::string> KnownKeys() {
  std::vector<std::string> keys(kOwnKeys.begin(), kOwnKeys.end());
  const auto* const descriptor = v1::SamplingParams::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    keys.push_back(descriptor->field(i)->name());
  }
  return keys;
}

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

absl::Status ReadText(const BatchJson& value, absl::string_view key, std::string* text) {
  if (!value.is_string()) return Wrong(absl::StrCat("\"", key, "\" must be a string"));
  *text = value.get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadId(const BatchJson& value, std::string* id) {
  if (value.is_number_integer()) {
    *id = value.dump();
    return absl::OkStatus();
  }
  return ReadText(value, "id", id);
}

absl::Status ReadDocuments(const BatchJson& value, std::vector<std::string>* documents) {
  const BatchJson list = value.is_array() ? value : BatchJson::array({value});
  for (const BatchJson& entry : list) {
    const absl::Status read = ReadText(entry, "documents", &documents->emplace_back());
    if (!read.ok()) return Wrong("\"documents\" must be a string or an array of strings");
    if (documents->back() == "-")
      return Wrong("a document cannot be standard input (-) here; name a file");
  }
  return absl::OkStatus();
}

v1::Message& AddMessage(v1::GenerationSpec& spec, const std::string& role,
                        const std::string& content) {
  v1::Message& message = *spec.mutable_messages()->add_messages();
  message.set_role(role);
  message.set_content(content);
  return message;
}

absl::Status ReadMessages(const BatchJson& value, v1::GenerationSpec& spec) {
  if (!value.is_array() || value.empty()) {
    return Wrong("\"messages\" must be an array with at least one message");
  }
  for (const BatchJson& entry : value) {
    std::string role, content;
    const bool good = entry.is_object() && entry.contains("role") && entry.contains("content") &&
                      ReadText(entry["role"], "role", &role).ok() &&
                      ReadText(entry["content"], "content", &content).ok();
    if (!good) return Wrong("each of \"messages\" needs the strings \"role\" and \"content\"");
    AddMessage(spec, role, content);
  }
  return absl::OkStatus();
}

// Reads all keys other than kOwnKeys as fields of SamplingParams.
absl::Status ReadSampling(const BatchJson& json, v1::SamplingParams& sampling) {
  BatchJson rest = json;
  for (const char* key : kOwnKeys) rest.erase(key);
  v1::SamplingParams given;
  const auto read = google::protobuf::util::JsonStringToMessage(rest.dump(), &given);
  if (!read.ok())
    return Wrong(absl::StrCat("a value of the wrong type: ", read.message().ToString()));
  // MergeFrom appends to lists, but a list in the line replaces the default one.
  if (given.stop_size() > 0) sampling.clear_stop();
  if (given.stop_token_ids_size() > 0) sampling.clear_stop_token_ids();
  if (given.logit_bias_size() > 0) sampling.clear_logit_bias();
  sampling.MergeFrom(given);
  return absl::OkStatus();
}

absl::Status ReadInput(const BatchJson& json, const std::string& default_system,
                       v1::GenerationSpec& spec) {
  const int inputs = static_cast<int>(json.contains("question")) +
                     static_cast<int>(json.contains("prompt")) +
                     static_cast<int>(json.contains("messages"));
  if (inputs != 1) return Wrong("give exactly one of \"question\", \"prompt\" and \"messages\"");
  std::string text, system = default_system;
  absl::Status read;
  if (json.contains("system")) read = ReadText(json["system"], "system", &system);
  if (!read.ok()) return read;
  if (json.contains("prompt")) {
    if (json.contains("system")) return Wrong("\"system\" needs \"question\", not \"prompt\"");
    read = ReadText(json["prompt"], "prompt", &text);
    spec.set_text(text);
    return read;
  }
  if (!system.empty()) AddMessage(spec, "system", system);
  if (json.contains("messages")) return ReadMessages(json["messages"], spec);
  read = ReadText(json["question"], "question", &text);
  AddMessage(spec, "user", text);
  return read;
}

absl::Status ReadChoices(const BatchJson& json, v1::GenerationSpec& spec) {
  absl::Status read;
  if (json.contains("model")) read = ReadText(json["model"], "model", spec.mutable_model());
  if (read.ok() && json.contains("attention")) {
    read = ReadText(json["attention"], "attention", spec.mutable_attention()->mutable_policy());
  }
  if (read.ok() && json.contains("coverage")) {
    if (!json["coverage"].is_number()) return Wrong("\"coverage\" is not a number");
    spec.mutable_attention()->set_coverage(json["coverage"].get<double>());
  }
  return read.ok() ? ReadSampling(json, *spec.mutable_sampling()) : read;
}

absl::Status CheckKeys(const BatchJson& json) {
  const std::vector<std::string> known = KnownKeys();
  for (const auto& entry : json.items()) {
    if (std::find(known.begin(), known.end(), entry.key()) != known.end()) continue;
    const std::string meant = MeantWord(entry.key(), known);
    return Wrong(
        absl::StrCat("unknown key \"", entry.key(), "\"",
                     meant.empty() ? "" : absl::StrCat("; did you mean \"", meant, "\"?")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BatchLine> ParseBatchLine(const std::string& text, int64_t number,
                                         const v1::GenerationSpec& defaults,
                                         const std::string& system) {
  const std::optional<BatchJson> parsed = ParseJson(text);
  if (!parsed.has_value()) return Wrong("it is not JSON in UTF-8, or is nested too deeply");
  const BatchJson& json = *parsed;
  if (!json.is_object()) return Wrong("it is not a JSON object");
  BatchLine line{.id = absl::StrCat(number), .number = number, .documents = {}, .spec = defaults};
  // Request ids must be unique, so each line gets its own.
  if (defaults.has_request_id()) {
    line.spec.set_request_id(absl::StrCat(defaults.request_id(), "-", number));
  }
  absl::Status read = CheckKeys(json);
  if (read.ok() && json.contains("id")) read = ReadId(json["id"], &line.id);
  if (read.ok() && json.contains("documents")) {
    read = ReadDocuments(json["documents"], &line.documents);
  }
  if (read.ok()) read = ReadInput(json, system, line.spec);
  if (read.ok()) read = ReadChoices(json, line.spec);
  if (!read.ok()) return read;
  return line;
}

std::string RequestKey(const std::string& id, const v1::GenerationSpec& spec) {
  std::string bytes = absl::StrCat(id.size(), ":", id);
  {
    google::protobuf::io::StringOutputStream stream(&bytes);  // appends
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // maps in one order
    spec.SerializeToCodedStream(&coded);
  }
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return absl::BytesToHexString(digest);
}

}  // namespace annulus::client

#include "server/http/openai/logprob_json.h"

#include "absl/strings/str_cat.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

std::string BytesJson(absl::string_view bytes) {
  std::string json = "[";
  for (const char c : bytes) {
    absl::StrAppend(&json, json.size() > 1 ? "," : "", static_cast<unsigned char>(c));
  }
  return json + "]";
}

// The token with this index in TokenLogprob::texts.
std::string TokenJson(const TokenLogprob& entry, size_t index, float logprob) {
  return absl::StrCat("\"token\":", JsonString(LogprobText(entry, index)),
                      ",\"logprob\":", JsonNumber(logprob),
                      ",\"bytes\":", BytesJson(entry.BytesOf(index)));
}

}  // namespace

absl::string_view LogprobText(const TokenLogprob& logprob, size_t index) {
  return index < logprob.texts.size() ? absl::string_view(logprob.texts[index]) : "";
}

std::string LogprobEntries(const Delta& delta) {
  std::string json;
  for (const TokenLogprob& logprob : delta.logprobs) {
    absl::StrAppend(&json, json.empty() ? "{" : ",{", TokenJson(logprob, 0, logprob.logprob),
                    ",\"top_logprobs\":[");
    for (size_t i = 0; i < logprob.alternatives.size(); ++i) {
      absl::StrAppend(&json, i == 0 ? "{" : ",{",
                      TokenJson(logprob, i + 1, logprob.alternatives[i].second), "}");
    }
    json += "]}";
  }
  return json;
}

}  // namespace annulus::server

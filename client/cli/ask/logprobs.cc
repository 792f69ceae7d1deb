#include "client/cli/ask/logprobs.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/format/json.h"
#include "client/format/table.h"

namespace annulus::client {
namespace {

std::string JsonText(const std::string& text) { return JsonWriter().String(text).text(); }

std::string Rounded(float logprob) { return absl::StrFormat("%.3f", logprob); }

}  // namespace

std::string LogprobsTable(std::span<const v1::TokenLogprob> logprobs, int columns) {
  if (logprobs.empty()) return "";
  Table table({{"TOKEN", Table::Align::kRight},
               {"TEXT"},
               {"LOGPROB", Table::Align::kRight},
               {"ALTERNATIVES"}});
  for (const v1::TokenLogprob& token : logprobs) {
    std::vector<std::string> alternatives;
    for (const v1::LogprobAlternative& alternative : token.alternatives()) {
      alternatives.push_back(
          absl::StrCat(JsonText(alternative.text()), " ", Rounded(alternative.logprob())));
    }
    table.AddRow({absl::StrCat(token.token_id()), JsonText(token.text()), Rounded(token.logprob()),
                  absl::StrJoin(alternatives, ", ")});
  }
  return table.Render(columns);
}

}  // namespace annulus::client

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/config/options.h"

namespace annulus::server {
namespace {

// Formats text as a YAML scalar: in double quotes, unless YAML reads it as the same text without.
std::string Scalar(const std::string& text) {
  const bool plain =
      !text.empty() && text != "null" && absl::ascii_isalnum(text.front()) && text.back() != ':' &&
      std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '/' || c == ':' || c == '-';
      });
  if (plain) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) {
      absl::StrAppendFormat(&quoted, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

std::string ConfigText(const OptionTexts& texts) {
  std::string text =
      "# Configuration of annulusd. Lines that begin with one # show defaults: remove it to "
      "change one.\n# A flag or an environment variable (ANNULUS_KV_MEMORY=4GiB) overrides this "
      "file.\n";
  for (const Option& option : Options()) {
    absl::StrAppend(
        &text, "\n",
        Paragraph(absl::StrCat(option.value_name, ". ", Explanation(option)), "## ", "## "),
        texts.count(&option) != 0 ? "" : "#", YamlKey(option), ": ", Scalar(TextOf(texts, option)),
        "\n");
  }
  return text;
}

}  // namespace annulus::server

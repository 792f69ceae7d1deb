#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/api.h"
#include "server/config/options.h"

namespace annulus {
namespace {

constexpr size_t kHelpColumns = 98;

constexpr char kUsage[] =
    "Usage: annulusd [OPTION]...           serve a model\n"
    "       annulusd --check [OPTION]...   load the model, print what it is, and leave\n"
    "       annulusd --convert --model DIR --weights-dtype DTYPE --out DIR\n"
    "                                      write the model with such weights, and leave\n"
    "       annulusd --print-config [OPTION]...\n"
    "                                      print the configuration in effect, as a file for\n"
    "                                      --config that explains every option, and leave\n"
    "\n"
    "Examples:\n"
    "  annulusd                                  a demonstration model on 127.0.0.1:50051\n"
    "  annulusd --check --model /models/llama    whether a model can be served, and what it is\n"
    "  annulusd --model /models/llama --ranks 4 --kv-memory 8GiB\n"
    "  annulusd --convert --model /models/llama --weights-dtype int8 --out /models/llama-int8\n"
    "Then, in another terminal: annulus ask report.txt 'What does it conclude?' (annulus --help)\n"
    "\n"
    "Every option can also be a key of a YAML file (--config FILE or ANNULUS_CONFIG; dashes\n"
    "become underscores: kv_memory: 4GiB) or a variable (ANNULUS_KV_MEMORY=4GiB). A flag beats\n"
    "a variable, and a variable beats the file.\n"
    "\n";

}  // namespace

std::string Paragraph(absl::string_view text, absl::string_view first, absl::string_view below) {
  std::string lines;
  std::string line(first);
  size_t empty = first.size();  // length of a line without a word
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (line.size() > empty && line.size() + 1 + word.size() > kHelpColumns) {
      absl::StrAppend(&lines, line, "\n");
      line.assign(below.data(), below.size());
      empty = below.size();
    }
    absl::StrAppend(&line, line.size() > empty ? " " : "", word);
  }
  return absl::StrCat(lines, line, "\n");
}

std::string HelpText() {
  std::string text = absl::StrCat(kUsage, "  --config FILE\n      YAML file to read.\n");
  for (const Option& option : Options()) {
    std::string what = option.help;
    if (*option.default_value != '\0') {
      absl::StrAppend(&what, " Default: ", option.default_value, ".");
    }
    absl::StrAppend(&text, "  --", option.name, " ", option.value_name, "\n",
                    Paragraph(what, "      ", "      "));
  }
  absl::StrAppend(&text, "  --help, --version\n      Print this text, or the version.\n",
                  "\nAttention policies, their parameters, defaults and ranges:\n");
  for (const absl::string_view line : absl::StrSplit(DescribePolicies(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, Paragraph(line, "  ", "      "));
  }
  return text;
}

}  // namespace annulus

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/api.h"
#include "server/config/options.h"

namespace annulus::server {
namespace {

constexpr size_t kHelpColumns = 98;

constexpr char kUsage[] =
    "Usage: annulusd [OPTION]...           serve a model\n"
    "       annulusd --check [OPTION]...   load the model, describe it, and exit\n"
    "       annulusd --plan --model DIR|CONFIG.json [--memory SIZE] [--device NAME] [OPTION]...\n"
    "                                      which context length fits, for several dtypes and\n"
    "                                      numbers of GPUs, without loading weights\n"
    "       annulusd --convert --model DIR|FILE.gguf --weights-dtype DTYPE --out DIR\n"
    "                                      write the converted model to a new folder, and exit\n"
    "       annulusd --print-config [OPTION]...\n"
    "                                      print the configuration in effect, as a file for\n"
    "                                      --config that explains every option, and exit\n"
    "       annulusd --doctor [OPTION]...  check this machine, print what is good and what to\n"
    "                                      improve, and exit\n"
    "       annulusd --hash-token          read a token from standard input, print its hash for\n"
    "                                      --tokens-file, and exit\n"
    "\n"
    "Examples:\n"
    "  annulusd                                  a demonstration model on 127.0.0.1:50051\n"
    "  annulusd --check --model /models/llama    check whether a model can be served\n"
    "  annulusd --model /models/llama --ranks 4 --kv-memory 8GiB\n"
    "  annulusd --plan --model /models/llama --device h100-80gb\n"
    "  annulusd --convert --model /models/llama --weights-dtype int8 --out /models/llama-int8\n"
    "Then, in another terminal: annulus ask report.txt 'What does it conclude?' (annulus --help)\n"
    "\n"
    "Every option can also be a key of a YAML file (--config FILE or ANNULUS_CONFIG; dashes\n"
    "become underscores: kv_memory: 4GiB) or an environment variable (ANNULUS_KV_MEMORY=4GiB).\n"
    "A flag overrides a variable, and a variable overrides the file.\n"
    "\n";

// Escapes text for roff.
std::string Roff(absl::string_view text) {
  const std::string escaped = absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
  return absl::StrCat(absl::StartsWith(escaped, ".") ? "\\&" : "",
                      absl::StrReplaceAll(escaped, {{"\n.", "\n\\&."}}));
}

std::string WithDefault(const Option& option) {
  const std::string text = Explanation(option);
  return option.default_value.empty() ? text
                                      : absl::StrCat(text, " Default: ", option.default_value, ".");
}

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
    absl::StrAppend(&text, "  --", option.name, " ", option.value_name, "\n",
                    Paragraph(WithDefault(option), "      ", "      "));
  }
  absl::StrAppend(&text,
                  "  -v\n      Short for --log-level debug.\n  --help, --man, --version\n      "
                  "Print this text, the manual page, or the version.\n",
                  "\nAttention policies, their parameters, defaults and ranges:\n");
  for (const absl::string_view line : absl::StrSplit(DescribePolicies(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, Paragraph(line, "  ", "      "));
  }
  return text;
}

std::string ManualText(absl::string_view version) {
  std::string text = absl::StrCat(
      ".TH ANNULUSD 8 \"\" \"annulus ", version, "\" \"System Administration\"\n",
      ".SH NAME\nannulusd \\- serve language models over long documents\n", ".SH SYNOPSIS\n.EX\n",
      Roff(kUsage), ".EE\n.SH OPTIONS\n.TP\n.B \\-\\-config FILE\nYAML file to read.\n");
  for (const Option& option : Options()) {
    absl::StrAppend(&text, ".TP\n.B ",
                    Roff(absl::StrCat("--", option.name, " ", option.value_name)), "\n",
                    Roff(WithDefault(option)), "\n");
  }
  absl::StrAppend(&text, ".TP\n.B \\-v\nShort for \\-\\-log\\-level debug.\n",
                  ".TP\n.B \\-\\-help, \\-\\-man, \\-\\-version\n",
                  "Print the help, this manual page, or the version.\n.SH ATTENTION POLICIES\n");
  for (const absl::string_view line : absl::StrSplit(DescribePolicies(), '\n', absl::SkipEmpty())) {
    absl::StrAppend(&text, ".PP\n", Roff(line), "\n");
  }
  return absl::StrCat(text, ".SH SEE ALSO\n.BR annulus (1)\n");
}

}  // namespace annulus::server

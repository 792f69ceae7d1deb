// annulus-demo: writes a demonstration document and says what was planted in it.

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/demo/document.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr char kUsage[] =
    R"(annulus-demo [--bytes N] [--seed N] [--facts N | --at DEPTH,DEPTH,...] --out FILE

Writes a document of invented, prose-like records to FILE: exactly --bytes bytes of ASCII
(default 1000000). Plants facts in it: --facts of them, spread evenly from 0.01 to 0.99 of its
length, or one at each DEPTH of --at (0 to 1; default 0.01,0.33,0.99). Prints one line of JSON per
fact:
  {"depth":0.01,"offset":601,"cue":"...","answer":"..."}
The record at byte `offset` is cue, answer and a line end. The 8 bytes before each byte of the
answer occur nowhere else, so the builtin recall model continues document + cue with exactly the
answer.
)";

struct Arguments {
  DemoOptions options;
  std::string out;
  bool help = false;
};

template <typename Number>
absl::Status ParseNumber(absl::string_view flag, absl::string_view value, Number& number) {
  if (absl::SimpleAtoi(value, &number)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(flag, " is '", value, "', allowed is a whole number"));
}

std::vector<double> EvenDepths(uint32_t facts) {
  std::vector<double> depths(facts, 0.5);
  for (uint32_t i = 0; facts > 1 && i < facts; ++i) depths[i] = 0.01 + 0.98 * i / (facts - 1);
  return depths;
}

absl::Status ParseDepths(absl::string_view value, std::vector<double>& depths) {
  depths.clear();
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    if (!absl::SimpleAtod(part, &depths.emplace_back())) {
      return absl::InvalidArgumentError(
          absl::StrCat("--at has '", part, "', allowed are numbers from 0 to 1"));
    }
  }
  return absl::OkStatus();
}

absl::Status Apply(absl::string_view flag, absl::string_view value, Arguments& arguments) {
  DemoOptions& options = arguments.options;
  if (flag == "--bytes") return ParseNumber(flag, value, options.bytes);
  if (flag == "--seed") return ParseNumber(flag, value, options.seed);
  if (flag == "--at") return ParseDepths(value, options.depths);
  if (flag == "--facts") {
    uint32_t facts = 0;
    ANNULUS_RETURN_IF_ERROR(ParseNumber(flag, value, facts));
    options.depths = EvenDepths(std::min(facts, 1'000'000u));
    return absl::OkStatus();
  }
  if (flag == "--out") {
    arguments.out = std::string(value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown flag '", flag, "'; flags: --bytes --seed --facts --at --out --help"));
}

absl::StatusOr<Arguments> ParseArguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; i += 2) {
    const absl::string_view flag = argv[i];
    if (flag == "--help") {
      arguments.help = true;
      return arguments;
    }
    if (i + 1 == argc) return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value"));
    ANNULUS_RETURN_IF_ERROR(Apply(flag, argv[i + 1], arguments));
  }
  if (arguments.out.empty()) return absl::InvalidArgumentError("--out FILE is needed");
  return arguments;
}

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", text.size(), " bytes to ", path));
}

absl::Status Run(const Arguments& arguments) {
  ANNULUS_ASSIGN_OR_RETURN(const DemoDocument document, MakeDemoDocument(arguments.options));
  ANNULUS_RETURN_IF_ERROR(Write(arguments.out, document.text));
  for (const DemoFact& fact : document.facts) {
    // Cues and answers hold nothing that JSON would escape: see Prose.
    std::cout << absl::StreamFormat(
        "{\"depth\":%g,\"offset\":%d,\"cue\":\"%s\",\"answer\":\"%s\"}\n", fact.depth, fact.offset,
        fact.cue, fact.answer);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace annulus::bench

int main(int argc, char** argv) {
  const absl::StatusOr<annulus::bench::Arguments> arguments =
      annulus::bench::ParseArguments(argc, argv);
  if (!arguments.ok()) {
    std::cerr << "annulus-demo: " << arguments.status().message() << "\n" << annulus::bench::kUsage;
    return 2;
  }
  if (arguments->help) {
    std::cout << annulus::bench::kUsage;
    return 0;
  }
  const absl::Status status = annulus::bench::Run(*arguments);
  if (!status.ok()) {
    std::cerr << "annulus-demo: " << status.message() << "\n";
    return absl::IsInvalidArgument(status) ? 2 : 1;
  }
  return 0;
}

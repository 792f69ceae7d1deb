// annulus-tokenize: prints the token ids of standard input by the tokenizer of a directory, in
// memory for a part of the text. `annulus tokenize --tokenizer DIR` becomes this program: the
// command line client knows nothing of the engine.

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/text/streaming_encoder.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitMisuse = 2;
constexpr char kUsage[] =
    "Usage: annulus-tokenize [--no-special] [--json] DIR < TEXT\n"
    "Prints the token ids of TEXT by tokenizer.json or tokenizer.model in DIR.\n";

struct Options {
  std::string directory;
  bool add_special = true;
  bool json = false;
};

void Print(const std::vector<int32_t>& ids, char separator, bool* first) {
  std::string text;
  for (const int32_t id : ids) {
    if (!*first) text.push_back(separator);
    absl::StrAppend(&text, id);
    *first = false;
  }
  std::cout << text;
}

absl::Status Tokenize(const Options& options) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                           LoadTokenizer(options.directory));
  const std::unique_ptr<StreamingEncoder> stream = tokenizer->NewStream(options.add_special);
  const char separator = options.json ? ',' : ' ';
  std::vector<char> part(size_t{1} << 16);
  std::vector<int32_t> ids;
  bool first = true;
  if (options.json) std::cout << "{\"token_ids\":[";
  while (std::cin) {
    std::cin.read(part.data(), static_cast<std::streamsize>(part.size()));
    ids.clear();
    ANNULUS_RETURN_IF_ERROR(stream->Append(
        absl::string_view(part.data(), static_cast<size_t>(std::cin.gcount())), &ids));
    Print(ids, separator, &first);
  }
  ids.clear();
  ANNULUS_RETURN_IF_ERROR(stream->Finish(&ids));
  Print(ids, separator, &first);
  std::cout << (options.json ? "]}\n" : "\n") << std::flush;
  return std::cout ? absl::OkStatus() : absl::DataLossError("standard output cannot be written");
}

int Main(const std::vector<std::string>& arguments) {
  Options options;
  for (const std::string& argument : arguments) {
    if (argument == "--no-special") {
      options.add_special = false;
    } else if (argument == "--json") {
      options.json = true;
    } else if (argument == "--help") {
      std::cout << kUsage;
      return 0;
    } else if (options.directory.empty() && !argument.empty() && argument.front() != '-') {
      options.directory = argument;
    } else {
      std::cerr << kUsage;
      return kExitMisuse;
    }
  }
  if (options.directory.empty()) {
    std::cerr << kUsage;
    return kExitMisuse;
  }
  const absl::Status status = Tokenize(options);
  if (status.ok()) return 0;
  std::cerr << "annulus: " << status.message() << "\n";
  return absl::IsDataLoss(status) ? kExitFailure : kExitMisuse;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return annulus::Main(std::vector<std::string>(argv + 1, argv + argc));
}

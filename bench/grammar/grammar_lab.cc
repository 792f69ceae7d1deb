// grammar-lab: masks of constraints along given walks, timed, for yardstick.py to compare.
//   grammar-lab TOKENIZER_DIRECTORY END_ID ROUNDS MASKS_FILE < WALKS
// WALKS: a line of JSON for each walk: {"kind": "json_schema" | "json_object" | "regex",
// "text": ..., "tokens": [ids]}. Prints a line of JSON for each: {"compile_us": ..., "mask_us":
// [...], "stopped": steps} or {"error": ...}; times are the least of ROUNDS rounds, each with an
// empty cache. MASKS_FILE gets the rows of all steps of the walks that were not refused: one before
// each token, and one at the end.
#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/grammar/compiler/compile.h"
#include "engine/grammar/matcher.h"

namespace annulus {
namespace {

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

OutputConstraint ConstraintOf(const nlohmann::json& walk) {
  OutputConstraint constraint;
  const std::string kind = walk["kind"];
  constraint.kind = kind == "regex"         ? OutputConstraint::Kind::kRegex
                    : kind == "json_object" ? OutputConstraint::Kind::kJsonObject
                                            : OutputConstraint::Kind::kJsonSchema;
  constraint.text = walk["text"];
  return constraint;
}

struct Measured {
  double compile_us = 0;
  std::vector<double> mask_us;
  std::vector<uint32_t> rows;
};

absl::StatusOr<Measured> Measure(const OutputConstraint& constraint,
                                 const std::shared_ptr<const TokenTrie>& trie, int32_t end,
                                 const std::vector<int32_t>& tokens) {
  Measured measured;
  auto start = std::chrono::steady_clock::now();
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  const auto machine =
      CompileConstraint(constraint, trie->single_bytes(), &work, &MemoryGrant::Unlimited());
  if (!machine.ok()) return machine.status();
  GrammarMatcher matcher(std::make_shared<GrammarCache>(*machine, trie, std::vector<int32_t>{end}));
  measured.compile_us = MicrosecondsSince(start);
  for (size_t i = 0; i <= tokens.size(); ++i) {
    start = std::chrono::steady_clock::now();
    const auto mask = matcher.Mask();
    measured.mask_us.push_back(MicrosecondsSince(start));
    if (!mask.ok()) return mask.status();
    measured.rows.insert(measured.rows.end(), mask->words.begin(), mask->words.end());
    if (i == tokens.size()) break;
    const auto read = matcher.Advance(tokens[i]);
    if (!read.ok()) return read.status();
    if (!*read) break;
  }
  return measured;
}

nlohmann::json Run(const nlohmann::json& walk, const std::shared_ptr<const TokenTrie>& trie,
                   int32_t end, int rounds, std::ostream& masks) {
  const std::vector<int32_t> tokens = walk["tokens"];
  Measured best;
  for (int round = 0; round < rounds; ++round) {
    auto measured = Measure(ConstraintOf(walk), trie, end, tokens);
    if (!measured.ok()) return {{"error", measured.status().ToString()}};
    if (round > 0) {
      best.compile_us = std::min(best.compile_us, measured->compile_us);
      for (size_t i = 0; i < best.mask_us.size(); ++i) {
        best.mask_us[i] = std::min(best.mask_us[i], measured->mask_us[i]);
      }
    } else {
      best = *std::move(measured);
    }
  }
  masks.write(reinterpret_cast<const char*>(best.rows.data()),
              static_cast<std::streamsize>(best.rows.size() * sizeof(uint32_t)));
  return {{"compile_us", best.compile_us},
          {"mask_us", best.mask_us},
          {"stopped", best.mask_us.size() - 1}};
}

int Main(int argc, char** argv) {
  int end = 0;
  int rounds = 0;
  if (argc != 5 || !absl::SimpleAtoi(argv[2], &end) || !absl::SimpleAtoi(argv[3], &rounds) ||
      rounds < 1) {
    std::cerr << "Usage: grammar-lab TOKENIZER_DIRECTORY END_ID ROUNDS MASKS_FILE < WALKS\n";
    return 2;
  }
  const auto tokenizer = LoadTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << "\n";
    return 1;
  }
  const int32_t vocabulary = std::max((*tokenizer)->vocabulary_size(), end + 1);
  const auto start = std::chrono::steady_clock::now();
  const auto trie =
      std::make_shared<const TokenTrie>(TokenTrie::FromTokenizer(**tokenizer, vocabulary));
  std::cerr << "trie: " << MicrosecondsSince(start) / 1000 << " ms, " << trie->plain().nodes.size()
            << " nodes of " << trie->plain().ids.size() << " plain tokens, "
            << trie->others().nodes.size() << " of " << trie->others().ids.size() << " others\n";
  std::ofstream masks(argv[4], std::ios::binary);
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json walk = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (walk.is_discarded()) {
      std::cerr << "grammar-lab: a walk is not JSON\n";
      return 1;
    }
    std::cout << Run(walk, trie, end, rounds, masks).dump() << std::endl;
  }
  return masks.flush() ? 0 : 1;
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) { return annulus::Main(argc, argv); }

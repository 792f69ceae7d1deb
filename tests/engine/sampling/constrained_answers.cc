// Answers to random logits under JSON schemas, for a program that checks them otherwise:
//   constrained-answers FIRST_SEED END_SEED < SCHEMAS
// Takes a schema a line, and prints a JSON object a line for each schema and seed: "schema" (its
// line, from 0), "seed", "text", and "whole". A text that has not ended after some hundred tokens
// is a beginning; the sampler then goes on with logits that favour what ends values, and "whole" is
// the text that it came to. For texts that ended, "whole" is the same.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "engine/grammar/compiler/compile.h"
#include "engine/sampling/philox.h"
#include "engine/sampling/sampler.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

constexpr int32_t kVocabulary = 512;
constexpr int32_t kEnd = kVocabulary - 1;
constexpr int kMostTokens = 200;
constexpr int kMostAfter = 4000;

// All bytes, and pieces of JSON of two to six bytes.
std::vector<std::string> Tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  const std::vector<std::string> pieces = {"\"", "\": ", "\",",  "{\"", "}", "]",    ",\n", "null",
                                           "tr", "ue",   "name", "id",  "5", "12",   "-",   ".0",
                                           "T1", "a",    "the",  " ",   "é", "\\u0", "[[",  "20"};
  for (size_t i = 0; tokens.size() < kEnd; ++i) {
    tokens.push_back(pieces[i % pieces.size()] + pieces[i / pieces.size() % pieces.size()]);
  }
  return tokens;
}

class Writer {
 public:
  Writer() : tokens_(Tokens()), workspace_(kVocabulary) {
    std::vector<std::pair<std::string, int32_t>> pairs;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      pairs.emplace_back(tokens_[i], static_cast<int32_t>(i));
    }
    trie_ = std::make_shared<const TokenTrie>(std::move(pairs), kVocabulary);
  }

  absl::StatusOr<std::shared_ptr<GrammarCache>> Compile(const std::string& schema) const {
    WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
    auto machine = CompileConstraint({OutputConstraint::Kind::kJsonSchema, schema, {}},
                                     trie_->single_bytes(), &work, &MemoryGrant::Unlimited());
    if (!machine.ok()) return machine.status();
    return std::make_shared<GrammarCache>(*machine, trie_, std::vector<int32_t>{kEnd});
  }

  // Sets "text" and "whole".
  absl::Status Write(const std::shared_ptr<GrammarCache>& cache, uint64_t seed,
                     nlohmann::json& answer) {
    SamplingParams params;
    params.seed = seed;
    params.temperature = 2;
    params.max_tokens = kMostTokens + kMostAfter;
    Sampler sampler(params, kVocabulary, std::vector<int32_t>{kEnd}, {}, GrammarMatcher(cache));
    std::string text;
    std::optional<std::string> beginning;
    for (int position = 0; position < params.max_tokens; ++position) {
      if (position == kMostTokens) beginning = text;
      const auto next =
          sampler.Sample(Logits(seed, position, beginning.has_value()), position, workspace_);
      if (!next.ok()) return next.status();
      sampler.Observe(next->token);
      if (next->token == kEnd) {
        answer["text"] = beginning.value_or(text);
        answer["whole"] = text;
        return absl::OkStatus();
      }
      text += tokens_[static_cast<size_t>(next->token)];
    }
    return absl::InternalError("the answer never ended: " + text);
  }

 private:
  const std::vector<float>& Logits(uint64_t seed, int position, bool closes) {
    logits_.resize(kVocabulary);
    for (int32_t token = 0; token < kVocabulary; ++token) {
      const auto at = static_cast<uint64_t>(position) * kVocabulary + static_cast<uint64_t>(token);
      logits_[static_cast<size_t>(token)] =
          static_cast<float>(12 * UniformAt(seed + 1'000'000, at));
    }
    if (!closes) return logits_;
    for (const char token : {'"', '}', ']', 'n', 'u', 'l'}) {
      logits_[static_cast<unsigned char>(token)] += 60;
    }
    logits_[kEnd] += 100;
    return logits_;
  }

  const std::vector<std::string> tokens_;
  std::shared_ptr<const TokenTrie> trie_;
  std::vector<Candidate> workspace_;
  std::vector<float> logits_;
};

int Run(uint64_t first, uint64_t end) {
  Writer writer;
  std::string schema;
  for (int line = 0; std::getline(std::cin, schema); ++line) {
    const auto cache = writer.Compile(schema);
    if (!cache.ok()) {
      std::cerr << "constrained-answers: schema " << line << ": " << cache.status() << "\n";
      return 1;
    }
    for (uint64_t seed = first; seed < end; ++seed) {
      nlohmann::json answer = {{"schema", line}, {"seed", seed}};
      const absl::Status written = writer.Write(*cache, seed, answer);
      if (!written.ok()) {
        std::cerr << "constrained-answers: schema " << line << ", seed " << seed << ": " << written
                  << "\n";
        return 1;
      }
      std::cout << answer.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    }
  }
  return 0;
}

}  // namespace
}  // namespace annulus

int main(int count, char** arguments) {
  uint64_t first = 0;
  uint64_t end = 0;
  if (count != 3 || !absl::SimpleAtoi(arguments[1], &first) ||
      !absl::SimpleAtoi(arguments[2], &end)) {
    std::cerr << "usage: constrained-answers FIRST_SEED END_SEED < SCHEMAS\n";
    return 2;
  }
  return annulus::Run(first, end);
}

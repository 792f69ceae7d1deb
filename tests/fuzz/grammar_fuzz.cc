// An output constraint of any text, by its first byte a schema, a regular expression or choices,
// and a walk through what it compiles to.
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/compiler/compile.h"
#include "engine/grammar/matcher.h"

namespace annulus {
namespace {

constexpr size_t kMemory = size_t{256} << 20;

class Bounded final : public MemoryGrant {
 public:
  absl::Status Allow(size_t bytes) override {
    return bytes <= kMemory ? absl::OkStatus() : absl::ResourceExhaustedError("too much");
  }
};

OutputConstraint ConstraintOf(std::string text) {
  OutputConstraint constraint;
  const uint8_t kind = text.empty() ? 0 : static_cast<uint8_t>(text[0]) % 4;
  if (!text.empty()) text.erase(0, 1);
  constraint.kind = kind == 2   ? OutputConstraint::Kind::kRegex
                    : kind == 3 ? OutputConstraint::Kind::kChoices
                                : OutputConstraint::Kind::kJsonSchema;
  if (kind == 3) {
    constraint.choices = {text.substr(0, text.size() / 2), text.substr(text.size() / 2)};
  } else {
    constraint.text = std::move(text);
  }
  return constraint;
}

const std::shared_ptr<const TokenTrie>& Tokens() {
  static const auto& trie = *new std::shared_ptr<const TokenTrie>([] {
    std::vector<std::pair<std::string, int32_t>> tokens;
    for (int32_t byte = 0; byte < 256; ++byte) {
      tokens.emplace_back(std::string(1, static_cast<char>(byte)), byte);
    }
    for (const char* text : {"\"a", "\": ", "\", \"", "ab", "}]", "12", "\xC3\xA9", "null"}) {
      tokens.emplace_back(text, static_cast<int32_t>(tokens.size()));
    }
    return std::make_shared<const TokenTrie>(std::move(tokens), 265);
  }());
  return trie;
}

// Takes an allowed token again and again; aborts if the mask and the matcher disagree.
void Walk(GrammarMatcher matcher) {
  for (uint32_t step = 0; step < 64; ++step) {
    const auto mask = matcher.Mask();
    if (!mask.ok()) return;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < 264; ++id) {
      if ((mask->words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) allowed.push_back(id);
    }
    if (allowed.empty()) {
      if (!matcher.may_end()) abort();
      return;
    }
    const auto read = matcher.Advance(allowed[step * 7919 % allowed.size()]);
    if (read.ok() && !*read) abort();
    if (!read.ok()) return;
  }
}

void Try(const uint8_t* data, size_t size) {
  Bounded memory;
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  const auto machine =
      CompileConstraint(ConstraintOf(std::string(reinterpret_cast<const char*>(data), size)),
                        Tokens()->single_bytes(), &work, &memory);
  if (!machine.ok()) return;
  Walk(GrammarMatcher(
      std::make_shared<GrammarCache>(*machine, Tokens(), std::vector<int32_t>{264})));
}

}  // namespace
}  // namespace annulus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  annulus::Try(data, size);
  return 0;
}

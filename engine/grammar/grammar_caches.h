#ifndef ANNULUS_ENGINE_GRAMMAR_GRAMMAR_CACHES_H_
#define ANNULUS_ENGINE_GRAMMAR_GRAMMAR_CACHES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/grammar/machine.h"
#include "engine/grammar/matcher.h"
#include "engine/grammar/token_trie.h"

namespace annulus {

// The caches of one thread: one for each machine that has a matcher. Answers with the same
// constraint share one, if they share the machine (see MachineCache). Not thread-safe.
class GrammarCaches {
 public:
  // As for GrammarCache. `tokens` may be null if no matcher is ever made.
  GrammarCaches(std::shared_ptr<const TokenTrie> tokens, size_t max_bytes)
      : tokens_(std::move(tokens)), max_bytes_(max_bytes) {}

  bool can_match() const { return tokens_ != nullptr; }

  // A matcher at the beginning of a text. `end_ids` must be the same in all calls.
  GrammarMatcher NewMatcher(const std::shared_ptr<const Machine>& machine,
                            const std::vector<int32_t>& end_ids);

 private:
  const std::shared_ptr<const TokenTrie> tokens_;
  const size_t max_bytes_;
  // A cache keeps its machine, so a key names the same machine as long as the cache lives.
  std::map<const Machine*, std::weak_ptr<GrammarCache>> caches_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_GRAMMAR_CACHES_H_

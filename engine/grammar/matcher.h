#ifndef ANNULUS_ENGINE_GRAMMAR_MATCHER_H_
#define ANNULUS_ENGINE_GRAMMAR_MATCHER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/lazy_states.h"
#include "engine/grammar/machine.h"
#include "engine/grammar/token_trie.h"

namespace annulus {

// Which tokens may come next.
struct TokenMask {
  // A bit row as SampleRow::seen is: bit t % 32 of word t / 32 is 1 if token t is allowed. Tokens
  // that end the text are allowed exactly where the text may end. Valid until the next call for any
  // matcher of the same GrammarCache.
  std::span<const uint32_t> words;
  // The token, if one alone is allowed.
  std::optional<int32_t> only;
};

// What the matchers of one machine learn from each other: states, and masks by state. What a
// matcher answers does not depend on what others do.
//
// Takes about `max_bytes` for each matcher at most, and during a call LazyStates::kMostGrowth more.
// When that is full, all is dropped but where the matchers are and the mask of the first state. A
// matcher whose own state takes more than 1 / kStatesOfMatcher of its share ends. Not thread-safe:
// one for each machine and thread.
class GrammarCache {
 public:
  static constexpr size_t kDefaultBytes = size_t{2} << 20;
  // Stacks take three times as much with the table of them, twice that where vectors have grown,
  // and are copied only once all has doubled.
  static constexpr size_t kStatesOfMatcher = 16;

  // `end_ids`: tokens that end the text; they need not be in the trie.
  GrammarCache(std::shared_ptr<const Machine> machine, std::shared_ptr<const TokenTrie> tokens,
               std::vector<int32_t> end_ids, size_t max_bytes = kDefaultBytes);

  const TokenTrie& tokens() const { return *tokens_; }
  size_t bytes() const;

 private:
  friend class GrammarMatcher;
  struct Row {
    std::vector<uint32_t> words;
    std::optional<int32_t> only;
  };

  // The text's state in `slot`; kDeadState if its matcher was ended.
  StateId& At(uint32_t slot) { return slots_[slot]; }
  uint32_t NewSlot(StateId state);
  void FreeSlot(uint32_t slot);

  // Returns what `find` returns for the state in `slot`, and then drops what is cached if that is
  // too much. `steps`: LazyStates::Begin. RESOURCE_EXHAUSTED if the matcher was ended.
  template <typename Find>
  std::invoke_result_t<Find, StateId> Call(uint32_t slot, int64_t& steps, const Find& find);
  void Trim();
  absl::Status TooDeep() const;
  absl::StatusOr<bool> Read(uint32_t slot, absl::string_view bytes);
  absl::StatusOr<TokenMask> MaskAt(StateId state);
  absl::Status Fill(StateId state, Row* row);
  absl::StatusOr<std::optional<int32_t>> OnlyAt(StateId state);
  // Calls take(ids) with the tokens of `tree` that can be read from `state`, some at a time, until
  // it returns false.
  template <typename Take>
  void Walk(const TokenTrie::Tree& tree, bool plain, StateId state, const Take& take);

  const std::shared_ptr<const Machine> machine_;
  const std::shared_ptr<const TokenTrie> tokens_;
  const std::vector<int32_t> end_ids_;
  const size_t max_bytes_;
  size_t trim_above_;  // bytes
  LazyStates states_;
  std::vector<StateId> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<Row> rows_;       // LazyStates::mask_of is an index
  StateId shown_ = kDeadState;  // whose mask the last call returned
  std::vector<StateId> path_;   // of a walk, by depth
};

// Follows one text through a machine. Cheap to copy (a few numbers), so guesses are tried on a
// copy, whose steps count as those of the original. Not thread-safe, like its cache.
class GrammarMatcher {
 public:
  // At the beginning of a text.
  explicit GrammarMatcher(std::shared_ptr<GrammarCache> cache);
  GrammarMatcher(const GrammarMatcher& other);
  GrammarMatcher& operator=(const GrammarMatcher& other);
  ~GrammarMatcher();

  // Reads a token that does not end the text, or bytes. False, without a change, if the text could
  // not go on so. RESOURCE_EXHAUSTED if the constraint is too ambiguous here, or nested too deep,
  // to go on; this matcher then cannot be used, while others can.
  absl::StatusOr<bool> Advance(int32_t token);
  absl::StatusOr<bool> AdvanceBytes(absl::string_view bytes);

  // Whether what was read may be the whole text.
  bool may_end() const;

  // Whether the text goes on with reasoning (Node::thinks).
  bool thinks() const;
  const Machine& machine() const;

  // Which tokens may come next. At least one is allowed, and none of them leads to where nothing
  // is. Errors of Advance.
  absl::StatusOr<TokenMask> Mask() const;

  // The token, if one alone may come next and the text may not end here. Finds no mask for it, so
  // it needs neither its time nor its memory. Errors of Advance.
  absl::StatusOr<std::optional<int32_t>> OnlyToken() const;

 private:
  std::shared_ptr<GrammarCache> cache_;
  std::shared_ptr<int64_t> steps_;  // LazyStates::Begin
  uint32_t slot_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_MATCHER_H_

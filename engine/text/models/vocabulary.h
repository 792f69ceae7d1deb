#ifndef ANNULUS_ENGINE_TEXT_MODELS_VOCABULARY_H_
#define ANNULUS_ENGINE_TEXT_MODELS_VOCABULARY_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The tokens of a tokenizer and their ids, one to one. Ids may have gaps. Not thread-safe while it
// is being filled; immutable afterwards.
class Vocabulary {
 public:
  static constexpr int32_t kMaxSize = 1 << 22;

  // INVALID_ARGUMENT for an empty token, an id outside [0, kMaxSize), or a duplicate token or id.
  absl::Status Add(absl::string_view token, int64_t id);

  std::optional<int32_t> Find(absl::string_view token) const;
  std::optional<absl::string_view> Token(int32_t id) const;

  // The largest id plus one.
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }

 private:
  std::deque<std::string> tokens_;  // stable addresses for the views
  std::vector<const std::string*> by_id_;
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_VOCABULARY_H_

#include "engine/grammar/grammar_caches.h"

namespace annulus {

GrammarMatcher GrammarCaches::NewMatcher(const std::shared_ptr<const Machine>& machine,
                                         const std::vector<int32_t>& end_ids) {
  std::erase_if(caches_, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<GrammarCache>& known = caches_[machine.get()];
  std::shared_ptr<GrammarCache> cache = known.lock();
  if (cache == nullptr) {
    cache = std::make_shared<GrammarCache>(machine, tokens_, end_ids, max_bytes_);
    known = cache;
  }
  return GrammarMatcher(std::move(cache));
}

}  // namespace annulus

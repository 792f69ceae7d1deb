#ifndef ANNULUS_SERVER_HTTP_SENTENCE_PARTS_H_
#define ANNULUS_SERVER_HTTP_SENTENCE_PARTS_H_

#include <cstddef>
#include <cstdint>

#include "engine/api.h"
#include "engine/api/sentence_ends.h"

namespace annulus::server {

// Splits the deltas of an answer at the ends of its sentences, which its evidence is about. Not
// thread-safe.
class SentenceParts {
 public:
  // Calls visit(part, evidence, ends) for each part of the next delta, in the order of the answer.
  // `part` is a delta with reasoning, or with text of one sentence, or with calls, or with nothing;
  // `ends` says that a sentence ends with it, and `evidence` is that sentence's; null: none.
  template <typename Visit>
  void Split(const Delta& delta, const Visit& visit) {
    size_t next = 0;
    const auto evidence = [&]() -> const SentenceEvidence* {
      const bool has_ended = next < delta.evidence.size() && delta.evidence[next].end <= end_;
      return has_ended ? &delta.evidence[next++] : nullptr;
    };
    // Of a sentence that has ended without a mark.
    const auto visit_late = [&] {
      while (const SentenceEvidence* const late = evidence()) visit(Delta(), late, true);
    };
    visit_late();
    if (!delta.reasoning.empty()) {
      Delta part;
      part.reasoning = delta.reasoning;
      ends_.Restart();
      visit(part, nullptr, false);
    }
    Delta part;
    for (const char byte : delta.text) {
      ++end_;
      part.text.push_back(byte);
      if (!ends_.Push(byte)) continue;
      visit(part, evidence(), true);
      part.text.clear();
    }
    if (!part.text.empty()) visit(part, nullptr, false);
    visit_late();
    if (delta.calls.empty()) return;
    Delta calls;
    calls.calls = delta.calls;
    ends_.Restart();
    visit(calls, nullptr, false);
  }

 private:
  SentenceEnds ends_;
  int64_t end_ = 0;  // bytes of the answer's text so far
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_SENTENCE_PARTS_H_

#ifndef ANNULUS_CLIENT_CLI_ASK_EVIDENCE_TEXT_H_
#define ANNULUS_CLIENT_CLI_ASK_EVIDENCE_TEXT_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::client {

// Numbers the passages of an answer in the order in which its sentences name them, and puts the
// numbers into its text: "It rained.[1] It stopped.[1][2]". Not thread-safe.
class EvidenceNotes {
 public:
  // Returns the delta's text with the numbers of the sentences that it brings evidence of, each
  // number behind the last letter of its sentence.
  std::string Mark(const v1::Delta& delta);

  // A line for each passage, in the order of their numbers: "[1] report.pdf, page 12: the text".
  // `titles`: of the request's documents, in order; may be fewer. Empty if there are none.
  std::string Lines(const std::vector<std::string>& titles) const;

  // The passage's number, from 1; a new one if it has none.
  int NumberOf(const v1::Passage& passage);
  // All that have a number, in the order of their numbers.
  const std::vector<v1::Passage>& passages() const { return passages_; }

 private:
  std::map<std::tuple<int32_t, int64_t, int64_t>, int> numbers_;  // by document and tokens
  std::vector<v1::Passage> passages_;                             // [number - 1]
  int64_t bytes_ = 0;                                             // of the answer so far
};

// Where in the text the numbers of a sentence that ends at byte `end` stand: behind its last
// letter. `end` may lie outside of the text.
size_t NumbersAt(absl::string_view text, int64_t end);

// "report.pdf, page 12". `titles` as in EvidenceNotes::Lines.
std::string PlaceText(const v1::Passage& passage, const std::vector<std::string>& titles);

// Where the lines of EvidenceNotes::Lines go on when they are wrapped.
inline constexpr int kNotesIndent = 4;

// The answer's text with all numbers, for an answer that is printed as a whole.
std::string MarkAll(const std::string& text, const v1::Evidence& evidence, EvidenceNotes& notes);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_EVIDENCE_TEXT_H_

#ifndef ANNULUS_CLIENT_CLI_ASK_PASSAGES_H_
#define ANNULUS_CLIENT_CLI_ASK_PASSAGES_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::client {

// A stretch of a text that an answer may rest on.
struct Passage {
  size_t offset = 0;  // bytes of the text before it
  size_t size = 0;    // bytes, a few hundred
  size_t at = 0;      // offset of its rarest word that was looked for
  double score = 0;   // share of what was looked for, 0 to 1
  double asked = 0;   // share of the question's words alone, 0 to 1
};

// The words of a text in lower case: runs of letters and digits. Characters of scripts that are
// written without blanks are words of their own.
std::vector<std::string> WordsOf(absl::string_view text);

// Finds the passages that questions and answers are about, by the words they share. A word counts
// the more the fewer passages of all texts have it. Not thread-safe.
class PassageFinder {
 public:
  // Counts the words of `looked_for` in `texts`.
  PassageFinder(const std::vector<absl::string_view>& texts,
                const std::vector<std::string>& looked_for);

  // The passage of `text` that has most of a question's words and, a quarter as important, most of
  // the words that only the answer has.
  Passage Find(absl::string_view text, absl::string_view question, absl::string_view answer) const;

 private:
  std::map<std::string, double> weights_;  // of the words of `looked_for`
};

// Where in a document a byte stands: "page 7" or "slide 7" if the text has such marks, as that of
// pdf and pptx has, else "line 7", counted from 1.
std::string PlaceAt(absl::string_view document, size_t offset);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_PASSAGES_H_

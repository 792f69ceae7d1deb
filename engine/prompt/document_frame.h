#ifndef ANNULUS_ENGINE_PROMPT_DOCUMENT_FRAME_H_
#define ANNULUS_ENGINE_PROMPT_DOCUMENT_FRAME_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/api/chat.h"

namespace annulus {

// The plain frame, which tells the model where each document begins and ends, what it is called,
// and what is asked:
//
//   # Document 1: report.txt
//
//   (text)
//
//   # End of document 1
//
//   Question: (text)
//
// What stands in front of a document's text depends only on the documents before it, never on later
// ones or on the question, so prompts that begin alike share keys and values. Of several wordings,
// a small model answered best with this one: see bench/results/by-hand.md.
std::string FrameBegin(size_t number, const ChatDocument& document);
std::string FrameEnd(size_t number, const ChatDocument& document);
inline constexpr char kFrameQuestion[] = "Question: ";
// Stands after the question, for a model without a chat template, which continues the text.
inline constexpr char kFrameAnswer[] = "\n\nAnswer:";

// A document's name as it stands in a frame, on one line and perhaps between quotes: quotes,
// backslashes, control characters, line separators and characters that change the direction of
// writing are escaped as in JSON. `name` is UTF-8.
std::string EscapedName(absl::string_view name);

// Finds whether a text contains the words that end a plain frame, in any case and with any other
// characters between their letters. The frame of such a document ends with a mark of its own:
// ChatDocument::mark.
class EndMarkScanner {
 public:
  // The next bytes, cut anywhere.
  void Add(absl::string_view bytes);
  bool found() const { return found_; }

 private:
  size_t matched_ = 0;  // letters
  bool found_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_DOCUMENT_FRAME_H_

#ifndef ANNULUS_CLIENT_DRAW_ANSWER_PAGE_H_
#define ANNULUS_CLIENT_DRAW_ANSWER_PAGE_H_

#include <cstddef>
#include <string>
#include <vector>

namespace annulus::client {

// An answer, and the passages of documents that it rests on. Texts are UTF-8; places are bytes.
struct AnswerPage {
  struct Document {
    std::string title;
    std::string text;  // empty: not known here; the page then shows the passages alone
  };
  struct Passage {
    size_t document = 0;  // index into `documents`
    size_t begin = 0;     // of the document's text
    size_t end = 0;       // behind its last byte; places beyond the text are moved to its end
    std::string where;    // "report.pdf, page 12"
    std::string text;     // may be empty if the document's text is known
  };
  // Passages of a sentence, by their numbers, which count from 1.
  struct Note {
    size_t at = 0;  // where in the answer the numbers stand
    std::vector<int> numbers{};
  };

  std::string question{};
  std::string answer{};
  std::vector<Note> notes{};  // in the order of their places
  std::vector<Passage> passages{};
  std::vector<Document> documents{};
};

// Returns a self-contained HTML document without any script: the answer beside the documents. A
// click on a number leads to its passage, which is marked.
std::string AnswerPageHtml(const AnswerPage& page);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_ANSWER_PAGE_H_

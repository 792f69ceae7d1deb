#ifndef ANNULUS_SERVER_HTTP_OPENAI_FILE_CITATIONS_H_
#define ANNULUS_SERVER_HTTP_OPENAI_FILE_CITATIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/http/answer_blocks.h"
#include "server/http/attached_documents.h"

namespace annulus::server {

// Writes the evidence of an answer as annotations of its texts, as OpenAI's Responses have them: at
// the end of each sentence that has passages one `file_citation` for each document that these are
// in. Not thread-safe.
class FileCitations {
 public:
  explicit FileCitations(bool enabled) : enabled_(enabled) {}

  // See AnswerForm::SetDocuments; before the next ones.
  void SetDocuments(std::vector<PromptedDocument> documents) {
    if (enabled_) prompted_ = std::move(documents);
  }
  // Takes the evidence of a delta, after `blocks` has gathered its text.
  void Add(const Delta& delta, const AnswerBlocks& blocks);

  // The annotations of a block so far, as the entries of a JSON array.
  absl::string_view Of(size_t block) const;
  struct Annotation {
    size_t block = 0;
    size_t index = 0;  // among those of the block
    std::string json;
  };
  // Takes the annotations that were added since the last call, of blocks up to this one.
  std::vector<Annotation> TakeFresh(size_t last_block);

  // What Add has taken, and an upper bound of what it takes of a delta.
  size_t bytes() const { return bytes_; }
  size_t BytesOf(const Delta& delta) const;

 private:
  struct Text {
    size_t block = 0;
    int64_t begin = 0;  // in the answer's text
  };
  struct OfBlock {
    size_t count = 0;
    std::string json;
  };

  void NoteText(const Delta& delta, const AnswerBlocks& blocks);
  std::string FileOf(const Passage& passage) const;

  const bool enabled_;
  std::vector<PromptedDocument> prompted_;  // by Passage::document
  std::vector<Text> texts_;                 // the blocks that are texts
  int64_t text_end_ = 0;
  std::map<size_t, OfBlock> annotations_;
  std::vector<Annotation> fresh_;
  size_t bytes_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_FILE_CITATIONS_H_

#ifndef ANNULUS_SERVER_GENERATION_EVIDENCE_SINK_H_
#define ANNULUS_SERVER_GENERATION_EVIDENCE_SINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"
#include "server/documents/document_store.h"

namespace annulus::server {

// Bytes [begin, end) of a document.
struct ByteRange {
  int64_t begin = 0;
  int64_t end = 0;
};
// The pieces that a client made a document of: see FoundDocuments::pieces.
using DocumentPieces = std::vector<ByteRange>;

// The first and the last of these pieces that bytes [begin, end) touch, which are not empty; if
// they touch none, the next one, or else the last of all. There must be at least one piece.
std::pair<size_t, size_t> PiecesOf(const DocumentPieces& pieces, int64_t begin, int64_t end);

// Knows where passages lie in the documents of a request: see PassagePlace. Keeps the documents
// alive, so a document may be deleted while an answer about it is written. Immutable.
//
// If the text is kept, a passage begins and ends where sentences do, or else words, within kMostCut
// bytes of where its tokens do. In a document of pieces it is as many whole pieces as its tokens
// touch. If these have more than kMostPieceBytes, it is a part of them that ends as above.
class EvidenceSource {
 public:
  // How far from a block's edge a sentence or a word may begin or end.
  static constexpr int64_t kMostCut = 512;
  static constexpr int64_t kMostTextBytes = 4096;     // of PassagePlace::text
  static constexpr int64_t kMostPieceBytes = 16'384;  // of the text of whole pieces

  // `heads`: ModelInfo::evidence_heads. `pieces`: of each document, as FoundDocuments has them.
  EvidenceSource(const std::vector<DocumentPtr>& documents, const DocumentStore& store,
                 std::string heads, const std::vector<DocumentPieces>& pieces = {});

  // Fills in the place of a passage, whose document must be one of the request's.
  void Place(Passage& passage) const;
  const std::string& heads() const { return heads_; }

 private:
  struct Document {
    DocumentPtr stored;
    std::shared_ptr<const DocumentNotes> notes;  // null: none
    DocumentPieces pieces;
  };

  static void Quote(const Document& document, PassagePlace& place);

  std::vector<Document> documents_;
  std::string heads_;
};

// Passes a request's events on to its sink, with the places of their passages.
class EvidenceSink final : public TokenSink {
 public:
  EvidenceSink(std::shared_ptr<const EvidenceSource> source, std::shared_ptr<TokenSink> sink)
      : source_(std::move(source)), sink_(std::move(sink)) {}

  void OnQueued(int position) override { sink_->OnQueued(position); }
  void OnProgress(const PromptProgress& progress) override { sink_->OnProgress(progress); }
  void OnDelta(Delta delta) override;
  void OnDone(Completion completion) override;
  bool HasRoom() const override { return sink_->HasRoom(); }

 private:
  void PlaceAll(std::vector<SentenceEvidence>& sentences) const;

  const std::shared_ptr<const EvidenceSource> source_;
  const std::shared_ptr<TokenSink> sink_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_EVIDENCE_SINK_H_

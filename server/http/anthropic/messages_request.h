#ifndef ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_REQUEST_H_
#define ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_REQUEST_H_

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "server/http/attached_documents.h"
#include "server/http/json/json_reader.h"

namespace annulus::server {

// A block of a message's content, or an entry of `system`, as far as it has been read.
struct MessagesBlock {
  std::string field;  // its path in the request; empty: there is none
  std::string type;
  std::string text;     // of a text or thinking
  std::string title;    // of a document
  std::string context;  // likewise
  std::string source;   // the type of its source
  std::string media_type;
  std::string data;  // the source's text, or the result of a tool
  std::string file_id;
  std::string id;                // of a call, also where its result stands
  std::string name;              // of the tool
  std::string input;             // JSON
  DocumentPieces pieces;         // where the texts of a source's `content` stand in `data`
  bool lists_citations = false;  // of an earlier answer
  bool enables_citations = false;
};

// A request of POST /v1/messages or /v1/messages/count_tokens.
struct MessagesRequest {
  v1::GenerationSpec spec;
  std::vector<AttachedDocument> documents = {};
  bool stream = false;
  // For how long the keys and values of the documents are to stay: the longest of all
  // `cache_control`.
  std::optional<std::chrono::milliseconds> keep_for = std::nullopt;
  // The field of the first document that enables citations; empty: none does.
  std::string citing = {};

  // Used while it is read.
  std::string system = {};
  bool thinks = false;  // "thinking" is enabled
  bool names_tool = false;
  int messages = 0;       // so far; one of them may be several of `spec`
  int first = 0;          // which message of `spec` is the first of the newest
  bool has_role = false;  // of the newest
  int blocks = 0;         // likewise
  MessagesBlock block = {};
  bool after_text = false;          // the block before it is a text of the same message
  std::vector<size_t> joints = {};  // line feeds between texts of a message without a role yet
  std::string uncited = {};         // the first document without citations
  size_t pieces = 0;                // of all documents
};

// Reads a body. Checks the fields that this layer alone knows; all others are checked by
// GenerationCall, as over gRPC. `counts`: the body is of count_tokens, which has no max_tokens.
absl::Status ReadMessagesRequest(const std::deque<std::string>& body, bool counts,
                                 MessagesRequest& request, CallMemory& memory,
                                 const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_REQUEST_H_

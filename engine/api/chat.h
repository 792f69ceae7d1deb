#ifndef ANNULUS_ENGINE_API_CHAT_H_
#define ANNULUS_ENGINE_API_CHAT_H_

// Conversations and documents on their way to token ids.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus {

// One message of a conversation, as the model's chat template gets it. What is absent has no member
// there. All texts are UTF-8.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool" or what else the template knows
  std::optional<std::string> content;
  std::optional<std::string> name;
  std::optional<std::string> reasoning;     // "reasoning_content" and "thinking" in templates
  std::optional<std::string> tool_calls;    // JSON: an array of calls
  std::optional<std::string> tool_call_id;  // which call a message of the role "tool" answers
};

// A document of a prompt, as its frame shows it. The text's ids are put in by the caller.
struct ChatDocument {
  std::string name;  // UTF-8, of any characters
  // Ends the frame of a document for which TextStream::holds_end_mark: letters and digits that the
  // text cannot hold. Else empty.
  std::string mark;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;            // at least 1
  std::optional<std::string> tools;             // JSON: an array of definitions
  bool add_generation_prompt = true;            // ends with the beginning of an answer
  std::optional<std::string> template_options;  // JSON: an object of more variables
  // They stand in front of the first user message's content, or where a template with a variable
  // `documents` puts them.
  std::vector<ChatDocument> documents;
  // Documents get a frame: the template's own, or the plain one (engine/document_frame.h).
  bool framed = false;
};

// Where a document's ids go.
struct DocumentPlace {
  size_t at = 0;         // in front of token_ids[at]
  size_t frame_end = 0;  // token_ids from `at` up to here end the document's frame
};

struct RenderedChat {
  std::string text;                // without documents
  std::vector<int32_t> token_ids;  // the text's; the template writes the special tokens itself
  // One for each document, ascending. What stands between documents is tokenized separately, and
  // names and frames as plain text. So all ids up to the end of a document's frame are the same
  // for every prompt with the same documents up to there, whatever follows.
  std::vector<DocumentPlace> places;
};

// A document's text whose bytes come in parts, turned into the same ids as the whole. The texts of
// control tokens in it ("<|im_start|>") are plain text: it may have been written by anybody. One
// thread at a time.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // Takes the next bytes, which may end inside a character, and appends the ids that no later byte
  // can change. INVALID_ARGUMENT: not UTF-8, with the offset in the text, or a stretch of tens of
  // megabytes that offers no cut. After an error the stream is over.
  virtual absl::Status Append(absl::string_view bytes, std::vector<int32_t>& ids) = 0;

  // The text is at its end: appends the ids still to come. The last call.
  virtual absl::Status Finish(std::vector<int32_t>& ids) = 0;

  // Bytes of memory that what is held back may take until its ids are out. Little for text with
  // words; a stretch without any takes dozens of times its length.
  virtual size_t memory_bytes() const = 0;

  // Whether the text so far holds the words that end the plain frame: see ChatDocument::mark.
  virtual bool holds_end_mark() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_CHAT_H_

#ifndef ANNULUS_ENGINE_API_CHAT_H_
#define ANNULUS_ENGINE_API_CHAT_H_

// Conversations and documents, and how they become token ids.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/api/answer.h"

namespace annulus {

// One message of a conversation, as passed to the model's chat template. A field that is absent
// here is undefined in the template. All texts are UTF-8.
struct ChatMessage {
  // "system", "user", "assistant", "tool", or another role that the template knows.
  std::string role;
  std::optional<std::string> content;
  std::optional<std::string> name;
  std::optional<std::string> reasoning;   // templates see it as "reasoning_content" and "thinking"
  std::optional<std::string> tool_calls;  // JSON: an array of calls
  std::optional<std::string> tool_call_id;  // the call that a message with role "tool" answers
};

// A document of a prompt, as its frame shows it. The caller inserts the text's ids.
struct ChatDocument {
  std::string name;  // UTF-8; any characters
  // Letters and digits that the text cannot contain, used to end the frame. Needed only if
  // TextStream::holds_end_mark() is true for the document; otherwise empty.
  std::string mark;
};

struct ChatRequest {
  std::vector<ChatMessage> messages;  // at least 1
  std::optional<std::string> tools;   // JSON: an array of definitions
  bool add_generation_prompt = true;  // end with the beginning of the assistant's answer
  // End with the content of the last message, so that the answer continues it.
  bool continue_final_message = false;
  std::optional<std::string> template_options;  // JSON: an object with further template variables
  // Placed before the first user message's content, or where the template puts them if it uses a
  // variable `documents`.
  std::vector<ChatDocument> documents;
  // Give documents a frame: the template's own, or the plain one (engine/prompt/document_frame.h).
  bool framed = false;
};

// Where to insert a document's ids.
struct DocumentPlace {
  size_t at = 0;         // insert before token_ids[at]
  size_t frame_end = 0;  // ids in [at, frame_end) close the document's frame
};

// A rendered conversation. The caller inserts the ids of each document at its place.
struct RenderedChat {
  std::string text;                // without the documents' texts
  std::vector<int32_t> token_ids;  // of `text`; the template itself writes special tokens
  // One place per document, ascending. The text between two documents is tokenized separately, and
  // names and frames are tokenized as plain text. Therefore all ids up to the end of a document's
  // frame depend only on what precedes it, so prompts that begin with the same documents share
  // these ids (and their cached keys and values).
  std::vector<DocumentPlace> places;
  // The template refuses system messages at the beginning, so their contents, each with an empty
  // line behind it, stand in front of the content of the first user message, behind its documents.
  bool system_folded = false;
  // How to read the answer: RequestSpec::reading.
  AnswerReading reading;
};

// Where a token begins in a text; if that is inside a character, where the character does.
struct TokenPlace {
  int64_t byte = 0;
  int64_t character = 0;  // in code points

  bool operator==(const TokenPlace&) const = default;
};
// Of how many tokens a text has one place.
inline constexpr int32_t kPlaceTokens = 64;

// Tokenizes a document's text that arrives in parts. Yields the same ids as tokenizing the whole
// text at once. Control tokens spelled out in the text ("<|im_start|>") are treated as plain text,
// since anybody may have written it. Not thread-safe.
class TextStream {
 public:
  virtual ~TextStream() = default;

  // Takes the next bytes, which may end in the middle of a character, and appends those ids that no
  // later byte can change. INVALID_ARGUMENT if the bytes are not UTF-8 (with the offset in the
  // text), or if tens of megabytes contain no place to split the text. After an error the stream
  // cannot be used any more.
  virtual absl::Status Append(absl::string_view bytes, std::vector<int32_t>& ids) = 0;

  // Ends the text and appends the remaining ids. Must be the last call.
  virtual absl::Status Finish(std::vector<int32_t>& ids) = 0;

  // Upper bound of the bytes of memory needed for text whose ids are not final yet. Small for text
  // with words; a run without any place to split takes dozens of times its length.
  virtual size_t memory_bytes() const = 0;

  // Where token 0, kPlaceTokens, 2 * kPlaceTokens, .. of the ids so far begin. Ascending. Exact if
  // the tokenizer spells the text as it stands; where it changes it, near by. memory_bytes() does
  // not count them.
  virtual const std::vector<TokenPlace>& places() const = 0;

  // Whether the text so far contains the words that end the plain frame. If so, set
  // ChatDocument::mark.
  virtual bool holds_end_mark() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_CHAT_H_

#include "engine/prompt/chat_documents.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/prompt/chat.h"
#include "engine/prompt/document_frame.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Marks replace what the template must not see. They occur nowhere in the request, and begin and
// end with characters of private use, so that no template splits them.
class Marks {
 public:
  explicit Marks(const ChatRequest& request);

  enum class Kind : uint8_t { kPlace, kName, kText, kUnknown };

  std::string Place() const { return Mark('p', 0); }  // in front of the question
  std::string Name(size_t document) const { return Mark('n', document); }
  std::string Text(size_t document) const { return Mark('t', document); }

  // The first mark in `text`; of an unknown kind if the template changed it.
  struct Found {
    size_t begin = 0;
    size_t end = 0;
    Kind kind = Kind::kUnknown;
    size_t number = 0;
  };
  std::optional<Found> FindFirst(absl::string_view text) const;

 private:
  static constexpr absl::string_view kBegin =
      "\xEE\x80\x80"
      "documents ";
  static constexpr absl::string_view kEnd = "\xEE\x80\x81";

  std::string Mark(char kind, size_t number) const {
    return absl::StrCat(stem_, std::string(1, kind), number, kEnd);
  }

  std::string stem_;
};

Marks::Marks(const ChatRequest& request) {
  std::set<std::string> used;  // what stands behind kBegin, as long as the longest number
  const auto look_at = [&](const std::optional<std::string>& text) {
    if (!text.has_value()) return;
    const absl::string_view whole = *text;
    for (size_t at = whole.find(kBegin); at != whole.npos; at = whole.find(kBegin, at + 1)) {
      const std::string behind = text->substr(at + kBegin.size(), 20);
      used.insert(behind.substr(0, behind.find_first_not_of("0123456789")));
    }
  };
  look_at(request.tools);
  look_at(request.template_options);
  for (const ChatMessage& message : request.messages) {
    look_at(message.role);
    for (const auto* text : {&message.content, &message.name, &message.reasoning,
                             &message.tool_calls, &message.tool_call_id}) {
      look_at(*text);
    }
  }
  size_t number = 0;
  while (used.contains(absl::StrCat(number))) ++number;
  stem_ = absl::StrCat(kBegin, number, " ");
}

std::optional<Marks::Found> Marks::FindFirst(absl::string_view text) const {
  Found found;
  found.begin = text.find(stem_);
  if (found.begin == text.npos) return std::nullopt;
  const size_t kind = found.begin + stem_.size();
  const size_t end = text.find(kEnd, kind);
  found.end = end == text.npos ? kind : end + kEnd.size();
  const bool ends = end != text.npos && end > kind;
  if (!ends || !absl::SimpleAtoi(text.substr(kind + 1, end - kind - 1), &found.number)) {
    return found;
  }
  found.kind = text[kind] == 'p'   ? Kind::kPlace
               : text[kind] == 'n' ? Kind::kName
               : text[kind] == 't' ? Kind::kText
                                   : Kind::kUnknown;
  return found;
}

// Builds the ids of a prompt. Each part is tokenized by itself.
class PromptParts {
 public:
  PromptParts(const Tokenizer& tokenizer, const CancelFlag& cancel)
      : tokenizer_(tokenizer), cancel_(cancel) {}

  // Text of the template or of the client's messages: texts of control tokens become these tokens.
  absl::Status Add(absl::string_view text) {
    absl::StrAppend(&chat_.text, text);
    return Append(tokenizer_.Encode(text, /*add_special=*/false, cancel_));
  }

  // Names and plain frames.
  absl::Status AddPlain(absl::string_view text) {
    absl::StrAppend(&chat_.text, text);
    return Append(tokenizer_.EncodePlain(text, cancel_));
  }

  // The ids that the tokenizer adds to texts.
  absl::Status AddSpecial() { return Append(tokenizer_.Encode("", /*add_special=*/true, cancel_)); }

  void AddDocument() { chat_.places.push_back({chat_.token_ids.size(), chat_.token_ids.size()}); }
  void EndFrame() { chat_.places.back().frame_end = chat_.token_ids.size(); }

  absl::Status AddDocuments(const std::vector<ChatDocument>& documents, bool framed) {
    for (size_t i = 0; i < documents.size(); ++i) {
      if (framed) ANNULUS_RETURN_IF_ERROR(AddPlain(FrameBegin(i + 1, documents[i])));
      AddDocument();
      if (framed) ANNULUS_RETURN_IF_ERROR(AddPlain(FrameEnd(i + 1, documents[i])));
      EndFrame();
    }
    return absl::OkStatus();
  }

  RenderedChat Take() && { return std::move(chat_); }

 private:
  absl::Status Append(const absl::StatusOr<std::vector<int32_t>>& ids) {
    ANNULUS_RETURN_IF_ERROR(ids.status());
    chat_.token_ids.insert(chat_.token_ids.end(), ids->begin(), ids->end());
    return absl::OkStatus();
  }

  const Tokenizer& tokenizer_;
  const CancelFlag& cancel_;
  RenderedChat chat_;
};

// The request with `text` in front of the content of the first user message, if there is one.
std::optional<ChatRequest> WithPlace(const ChatRequest& request, const std::string& text) {
  ChatRequest marked = request;
  for (ChatMessage& message : marked.messages) {
    if (message.role != "user") continue;
    message.content = absl::StrCat(text, message.content.value_or(""));
    return marked;
  }
  return std::nullopt;
}

// Whether the first id of `text` that is more than white space is a control token's.
absl::StatusOr<bool> BeginsWithControl(const Tokenizer& tokenizer, absl::string_view text,
                                       const CancelFlag& cancel) {
  constexpr size_t kLooked = 256;  // bytes: longer than control tokens are
  ANNULUS_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      tokenizer.Encode(absl::ClippedSubstr(text, 0, kLooked), /*add_special=*/false, cancel));
  for (const int32_t id : ids) {
    if (tokenizer.IsControl(id)) return true;
    std::string bytes;
    DecodeState state;
    tokenizer.DecodeNext(id, &state, &bytes);
    if (!absl::StripAsciiWhitespace(bytes).empty()) return false;
  }
  return false;
}

// Names as a template's frame shows them. The second one of a name gets a number, so that the model
// can tell them apart.
std::vector<std::string> DistinctNames(const std::vector<ChatDocument>& documents) {
  std::set<std::string> used;
  std::vector<std::string> names;
  for (const ChatDocument& document : documents) {
    const std::string name = EscapedName(document.name);
    std::string distinct = name;
    for (int i = 2; !used.insert(distinct).second; ++i) distinct = absl::StrCat(name, " (", i, ")");
    names.push_back(std::move(distinct));
  }
  return names;
}

// The variable `documents` as Transformers hands it over: objects with a title and a text.
// Templates know a document by one of several names.
std::string DocumentsVariable(const Marks& marks, size_t count) {
  nlohmann::json documents = nlohmann::json::array();
  for (size_t i = 0; i < count; ++i) {
    documents.push_back(
        {{"title", marks.Name(i)}, {"doc_id", marks.Name(i)}, {"text", marks.Text(i)}});
  }
  return documents.dump();
}

// The prompt in the template's own frame, from the template's text with marks; nothing if that
// frame is not suitable. `has_place`: there is a mark in front of the question.
absl::StatusOr<std::optional<RenderedChat>> ReadOwnFrame(absl::string_view text, const Marks& marks,
                                                         bool has_place,
                                                         const std::vector<ChatDocument>& documents,
                                                         const Tokenizer& tokenizer,
                                                         const CancelFlag& cancel) {
  const std::vector<std::string> names = DistinctNames(documents);
  PromptParts parts(tokenizer, cancel);
  std::string written;  // by the template, up to the next name or text
  size_t next = 0;      // document
  while (const auto mark = marks.FindFirst(text)) {
    absl::StrAppend(&written, text.substr(0, mark->begin));
    text.remove_prefix(mark->end);
    if (mark->kind == Marks::Kind::kPlace) {
      if (!has_place || next < documents.size()) return std::nullopt;
      has_place = false;
      continue;
    }
    ANNULUS_RETURN_IF_ERROR(parts.Add(written));
    written.clear();
    if (mark->kind == Marks::Kind::kName && mark->number < names.size()) {
      ANNULUS_RETURN_IF_ERROR(parts.AddPlain(names[mark->number]));
    } else if (mark->kind == Marks::Kind::kText && mark->number == next) {
      ANNULUS_ASSIGN_OR_RETURN(const bool ends, BeginsWithControl(tokenizer, text, cancel));
      if (!ends) return std::nullopt;
      parts.AddDocument();
      ++next;
    } else {
      return std::nullopt;
    }
  }
  if (has_place || next < documents.size()) return std::nullopt;
  absl::StrAppend(&written, text);
  ANNULUS_RETURN_IF_ERROR(parts.Add(written));
  return std::move(parts).Take();
}

absl::StatusOr<std::optional<RenderedChat>> RenderOwnFrame(
    const TemplateDirectory& templates, const Tokenizer& tokenizer, const ChatRequest& request,
    const std::tm& now, const CancelFlag& cancel, MemoryGrant& memory) {
  ANNULUS_ASSIGN_OR_RETURN(const ChatTemplate* chat_template,
                           templates.Select(request.tools.has_value()));
  if (!chat_template->mentions_documents()) return std::nullopt;
  const Marks marks(request);
  const std::optional<ChatRequest> marked = WithPlace(request, marks.Place());
  const auto text =
      RenderTemplate(templates, marked.value_or(request),
                     DocumentsVariable(marks, request.documents.size()), now, cancel, memory);
  // A template that fails with these documents may work with plain frames.
  if (absl::IsInvalidArgument(text.status())) return std::nullopt;
  ANNULUS_RETURN_IF_ERROR(text.status());
  ANNULUS_RETURN_IF_ERROR(AllowIds(*text, memory));
  return ReadOwnFrame(*text, marks, marked.has_value(), request.documents, tokenizer, cancel);
}

absl::Status NoPlace(absl::string_view why) {
  return FieldError(absl::StatusCode::kInvalidArgument, "messages.messages", why);
}

}  // namespace

absl::StatusOr<RenderedChat> RenderWithDocuments(const TemplateDirectory& templates,
                                                 const Tokenizer& tokenizer,
                                                 const ChatRequest& request, const std::tm& now,
                                                 const CancelFlag& cancel, MemoryGrant& memory) {
  if (request.framed) {
    ANNULUS_ASSIGN_OR_RETURN(std::optional<RenderedChat> own,
                             RenderOwnFrame(templates, tokenizer, request, now, cancel, memory));
    if (own.has_value()) return *std::move(own);
  }
  const Marks marks(request);
  const std::string mark = marks.Place();
  const std::string question = request.framed ? kFrameQuestion : "";
  const std::optional<ChatRequest> marked = WithPlace(request, absl::StrCat(mark, question));
  if (!marked.has_value()) {
    return NoPlace("documents are placed in the first message of the role user, but there is none");
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string text,
                           RenderTemplate(templates, *marked, "null", now, cancel, memory));
  ANNULUS_RETURN_IF_ERROR(AllowIds(text, memory));
  const size_t place = text.find(mark);
  if (place == std::string::npos || text.find(mark, place + 1) != std::string::npos) {
    return NoPlace(
        "the model's chat template does not write the first user message exactly once, so there "
        "is no place for documents; put their text into a message");
  }
  PromptParts parts(tokenizer, cancel);
  ANNULUS_RETURN_IF_ERROR(parts.Add(absl::string_view(text).substr(0, place)));
  ANNULUS_RETURN_IF_ERROR(parts.AddDocuments(request.documents, request.framed));
  ANNULUS_RETURN_IF_ERROR(parts.Add(absl::string_view(text).substr(place + mark.size())));
  return std::move(parts).Take();
}

absl::StatusOr<RenderedChat> FrameDocuments(const Tokenizer& tokenizer,
                                            const std::vector<ChatDocument>& documents,
                                            absl::string_view text, const CancelFlag& cancel) {
  PromptParts parts(tokenizer, cancel);
  ANNULUS_RETURN_IF_ERROR(parts.AddSpecial());
  ANNULUS_RETURN_IF_ERROR(parts.AddDocuments(documents, /*framed=*/true));
  ANNULUS_RETURN_IF_ERROR(parts.Add(absl::StrCat(kFrameQuestion, text, kFrameAnswer)));
  return std::move(parts).Take();
}

}  // namespace annulus

#include "server/http/anthropic/messages_blocks.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/spec_fields.h"
#include "server/http/tool_definitions.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

// Texts that documents with citations are made of: their places are kept with the answer.
constexpr size_t kMostPieces = 4096;

absl::Status Unsupported(absl::string_view field, absl::string_view what) {
  return FieldError(field, absl::StrCat(QuoteName(what), " is not supported"));
}

// The texts of a message are lines, but the assistant's belong together: an answer with citations
// has a block for each sentence.
void AddTextBlock(MessagesRequest& request, absl::string_view text, bool after_text) {
  v1::Message& message = LastMessage(request.spec);
  std::string& content = *message.mutable_content();
  if (after_text && message.role() == "assistant") {
    content.append(text.data(), text.size());
    return;
  }
  if (after_text && message.role().empty() && !content.empty()) {
    request.joints.push_back(content.size());
  }
  AddLine(text, content);
}

// A document enables citations; a text has those that an earlier answer gave it, which change
// nothing.
absl::Status CheckCitations(const MessagesBlock& block) {
  if (block.type == "document" && block.lists_citations) {
    return FieldError(absl::StrCat(block.field, ".citations"),
                      "of a document must be an object: {\"enabled\": true}");
  }
  if (block.type != "document" && block.enables_citations) {
    return FieldError(absl::StrCat(block.field, ".citations.enabled"),
                      absl::StrCat("a block of type ", QuoteName(block.type),
                                   " cannot be cited: enable citations on blocks of type "
                                   "\"document\""));
  }
  return absl::OkStatus();
}

void NoteCitations(MessagesRequest& request, const MessagesBlock& block) {
  std::string& first = block.enables_citations ? request.citing : request.uncited;
  if (first.empty()) first = absl::StrCat(block.field, ".citations.enabled");
}

absl::Status FinishDocument(MessagesRequest& request, MessagesBlock block) {
  NoteCitations(request, block);
  AttachedDocument document{.field = block.field, .title = std::move(block.title)};
  if (block.source == "file") {
    if (block.file_id.empty()) return FieldError(block.field, "its source has no file_id");
    document.name = std::move(block.file_id);
  } else if (block.source == "base64") {
    const absl::Status is_text = CheckIsText(block.media_type, "");
    if (!is_text.ok()) return WithField(is_text, block.field);
    const absl::Status read = ReadFileData(block.data, document.text);
    if (!read.ok()) return WithField(read, block.field);
  } else if (block.source == "text" || block.source == "content") {
    document.text = std::move(block.data);
    if (block.source == "content" && block.enables_citations) {
      request.pieces += block.pieces.size();
      document.pieces = std::move(block.pieces);
    }
  } else {
    return FieldError(absl::StrCat(block.field, ".source.type"),
                      absl::StrCat(QuoteName(block.source),
                                   " is not supported: only \"text\", \"content\", \"base64\" "
                                   "and \"file\""));
  }
  // Beside the document, not in it: with another context its keys and values are the same.
  if (!block.context.empty()) AddText(request.spec, block.context);
  request.documents.push_back(std::move(document));
  return absl::OkStatus();
}

absl::Status AddCall(MessagesRequest& request, const MessagesBlock& block) {
  if (block.name.empty()) return FieldError(absl::StrCat(block.field, ".name"), "is required");
  AddToolCall(block.id, block.name, block.input.empty() ? "{}" : block.input,
              LastMessage(request.spec));
  return absl::OkStatus();
}

// Chat templates want each result of a tool as a message of its own.
absl::Status AddResult(MessagesRequest& request, MessagesBlock block) {
  if (LastMessage(request.spec).role() == "assistant") {
    return Unsupported(absl::StrCat(block.field, ".type"), block.type);
  }
  const v1::Message& last = LastMessage(request.spec);
  if (last.role() == "tool" || !last.content().empty()) {
    ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  }
  v1::Message& message = LastMessage(request.spec);
  message.set_role("tool");
  message.set_tool_call_id(std::move(block.id));
  message.set_content(std::move(block.data));
  return absl::OkStatus();
}

// What the user says behind the results.
absl::Status LeaveResults(MessagesRequest& request) {
  if (LastMessage(request.spec).role() != "tool") return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(StartMessage(request.spec));
  LastMessage(request.spec).set_role("user");
  return absl::OkStatus();
}

}  // namespace

void DropJoints(MessagesRequest& request) {
  std::string& content = *LastMessage(request.spec).mutable_content();
  std::string joined;
  joined.reserve(content.size());
  size_t from = 0;
  for (const size_t joint : request.joints) {
    joined.append(content, from, joint - from);
    from = joint + 1;
  }
  joined.append(content, from);
  content = std::move(joined);
}

absl::Status FinishBlock(MessagesRequest& request) {
  MessagesBlock block = std::exchange(request.block, MessagesBlock());
  if (block.field.empty()) return absl::OkStatus();
  if (block.type.empty()) return FieldError(absl::StrCat(block.field, ".type"), "is required");
  const bool is_text = block.type == "text";
  ANNULUS_RETURN_IF_ERROR(CheckCitations(block));
  if (absl::StartsWith(block.field, "system")) {
    if (!is_text) return Unsupported(absl::StrCat(block.field, ".type"), block.type);
    AddLine(block.text, request.system);
    return absl::OkStatus();
  }
  if (block.type == "tool_result") return AddResult(request, std::move(block));
  ANNULUS_RETURN_IF_ERROR(LeaveResults(request));
  const bool after_text = std::exchange(request.after_text, is_text);
  if (is_text) {
    AddTextBlock(request, block.text, after_text);
  } else if (block.type == "tool_use") {
    return AddCall(request, block);
  } else if (block.type == "thinking") {
    std::string& reasoning = *LastMessage(request.spec).mutable_reasoning();
    reasoning += block.text;
  } else if (block.type == "document") {
    return FinishDocument(request, std::move(block));
  } else {
    return Unsupported(absl::StrCat(block.field, ".type"), block.type);
  }
  return absl::OkStatus();
}

absl::Status StartBlock(MessagesRequest& request, std::string field) {
  ANNULUS_RETURN_IF_ERROR(FinishBlock(request));
  if (request.documents.size() > kMostDocuments) {
    return absl::InvalidArgumentError(
        absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
  }
  request.block.field = std::move(field);
  return absl::OkStatus();
}

absl::Status FinishCitations(MessagesRequest& request) {
  if (request.citing.empty()) return absl::OkStatus();
  if (!request.uncited.empty()) {
    return FieldError(request.uncited,
                      absl::StrCat("must be true, because ", request.citing,
                                   " is: citations are for all documents of a request or none"));
  }
  if (request.spec.documents_size() > 0) {
    return FieldError("annulus.documents",
                      "cannot be cited: send each of them as a block of type \"document\" with "
                      "the source {\"type\": \"file\", \"file_id\": its name}");
  }
  if (request.pieces > kMostPieces) {
    return FieldError(request.citing,
                      absl::StrCat("the documents have ", request.pieces,
                                   " blocks of content; with citations at most ", kMostPieces,
                                   " are allowed: join neighbours, or leave citations out"));
  }
  request.spec.set_evidence(true);
  for (AttachedDocument& document : request.documents) document.quoted = true;
  return absl::OkStatus();
}

}  // namespace annulus::server

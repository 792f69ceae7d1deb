#ifndef ANNULUS_ENGINE_PROMPT_CHAT_DOCUMENTS_H_
#define ANNULUS_ENGINE_PROMPT_CHAT_DOCUMENTS_H_

#include <ctime>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api/chat.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// RenderChat for a request with documents. The template sees marks instead of the documents, so it
// takes no time for them and cannot change them, and each document is tokenized by itself.
//
// A framed request gets the frame that the template writes for its own variable `documents`, if the
// template writes each text unchanged, in order, in front of the question, and ends it with a
// control token, which no text can contain. With any other template, plain frames stand in front of
// the content of the first user message.
absl::StatusOr<RenderedChat> RenderWithDocuments(const TemplateDirectory& templates,
                                                 const Tokenizer& tokenizer,
                                                 const ChatRequest& request, const std::tm& now,
                                                 const CancelFlag& cancel, MemoryGrant& memory);

// Engine::FrameText.
absl::StatusOr<RenderedChat> FrameDocuments(const Tokenizer& tokenizer,
                                            const std::vector<ChatDocument>& documents,
                                            absl::string_view text, const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_CHAT_DOCUMENTS_H_

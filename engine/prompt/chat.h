#ifndef ANNULUS_ENGINE_PROMPT_CHAT_H_
#define ANNULUS_ENGINE_PROMPT_CHAT_H_

#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/chat.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// Implements Engine::ApplyChatTemplate with the templates of a model directory. If the template
// refuses the conversation and this begins with system messages, tries it again with these folded:
// see RenderedChat::system_folded. `now`: the date for
// templates that write one. Thread-safe; `cancel` ends it early. Asks `memory` for all that it
// takes, the result included, except for a few copies of the request's texts.
absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel,
                                        MemoryGrant& memory);

// Returns the text that the template makes of the request's messages, without its documents.
// `documents` is the template's variable of that name, as JSON.
absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
                                           const ChatRequest& request, const std::string& documents,
                                           const std::tm& now, const CancelFlag& cancel,
                                           MemoryGrant& memory);

// Asks `memory` for a template's text and its ids, and for cutting the text into parts and joining
// these again.
absl::Status AllowIds(const std::string& text, MemoryGrant& memory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_CHAT_H_

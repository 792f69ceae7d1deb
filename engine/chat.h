#ifndef ANNULUS_ENGINE_CHAT_H_
#define ANNULUS_ENGINE_CHAT_H_

#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/chat.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// Engine::ApplyChatTemplate, from what a model directory holds. `now`: what templates that write
// the date take for it. Thread-safe; `cancel` ends it early. `memory` is asked for what it takes
// beside a few copies of the request's texts, the result included.
absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel,
                                        MemoryGrant& memory);

// The text that the template makes of the request's messages; its documents are not looked at.
// `documents` is the template's variable of that name, as JSON.
absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
                                           const ChatRequest& request, const std::string& documents,
                                           const std::tm& now, const CancelFlag& cancel,
                                           MemoryGrant& memory);

// Asks for what a template's text takes, and for its ids, also if it is cut into parts and put
// together again.
absl::Status AllowIds(const std::string& text, MemoryGrant& memory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CHAT_H_

#ifndef ANNULUS_ENGINE_CHAT_H_
#define ANNULUS_ENGINE_CHAT_H_

#include <ctime>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api/chat.h"
#include "engine/base/work_meter.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// Engine::ApplyChatTemplate, from what a model directory holds. `now`: what templates that write
// the date take for it. Thread-safe; `cancel` ends it early.
absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel);

// The text that the template makes of the request's messages; its documents are not looked at.
// `documents` is the template's variable of that name, as JSON.
absl::StatusOr<std::string> RenderTemplate(const TemplateDirectory& templates,
                                           const ChatRequest& request, const std::string& documents,
                                           const std::tm& now, const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CHAT_H_

#ifndef ANNULUS_ENGINE_CHAT_H_
#define ANNULUS_ENGINE_CHAT_H_

#include <ctime>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "engine/text/template/template_directory.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// Engine::ApplyChatTemplate, from what a model directory holds. `now`: what templates that write
// the date take for it. Thread-safe; `cancel` ends it early.
absl::StatusOr<RenderedChat> RenderChat(const TemplateDirectory& templates,
                                        const Tokenizer& tokenizer, const ChatRequest& request,
                                        const std::tm& now, const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_CHAT_H_

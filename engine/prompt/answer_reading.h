#ifndef ANNULUS_ENGINE_PROMPT_ANSWER_READING_H_
#define ANNULUS_ENGINE_PROMPT_ANSWER_READING_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/answer.h"
#include "engine/api/chat.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"

namespace annulus {

// Sets RenderedChat::reading of a conversation that was rendered from `request`: the model's
// reading, the request's tools, and whether the prompt, or the message that the answer continues,
// ends inside of a block of reasoning.
// INVALID_ARGUMENT names messages.tools; errors of `memory`.
absl::Status SetReading(const AnswerReading& model, const ChatRequest& request, RenderedChat& chat,
                        MemoryGrant& memory);

// Writes the calls in a conversation's messages as the model's template wants them. Clients of
// OpenAI's API send arguments as a text of JSON, and no content; templates want an object and an
// empty content, those of the family "deepseek" the contrary. What does not look like a call stays,
// and nesting is not limited: the template does that. Asks `memory` for what it takes beside copies
// of the request's texts; CANCELLED if the flag is set.
absl::StatusOr<ChatRequest> AdaptCalls(const AnswerReading& model, const ChatRequest& request,
                                       const CancelFlag& cancel, MemoryGrant& memory);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_ANSWER_READING_H_

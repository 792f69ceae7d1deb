#ifndef ANNULUS_ENGINE_LOADING_TURN_ENDS_H_
#define ANNULUS_ENGINE_LOADING_TURN_ENDS_H_

#include <span>
#include <string>
#include <utility>

#include "engine/model/model_config.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// Adds to `config.eos_ids` the tokens that end a turn of a chat. Files often name only the end of a
// text, and a model that ends a turn with another token would go on as the user, to max_tokens.
//
// Added are Family::turn_ends of the model, and the eos_token of `special_tokens` (those of
// tokenizer_config.json, as TemplateDirectory returns them), each only if its text is exactly one
// control token of the tokenizer. Family::message_ends are taken out, whoever named them, as long
// as another end is left.
void AddTurnEnds(const Tokenizer& tokenizer,
                 std::span<const std::pair<std::string, std::string>> special_tokens,
                 ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_LOADING_TURN_ENDS_H_

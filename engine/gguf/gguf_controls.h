#ifndef ANNULUS_ENGINE_GGUF_GGUF_CONTROLS_H_
#define ANNULUS_ENGINE_GGUF_GGUF_CONTROLS_H_

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Finds the tokens that a chat template writes by itself, so that they steer the model whatever the
// file says of their types: those whose text is in angle or square brackets and that occur in the
// template's literals, or in what it makes of some short conversations. Returns their ids,
// ascending.
//
// `tokens`: by id. `is_candidate`: which ids to look for. `variables`: what the template may use
// beside messages (bos_token, ..). A template that is none finds nothing: loading it says why.
// INVALID_ARGUMENT: the candidates have more bytes than LiteralSet takes.
absl::StatusOr<std::vector<size_t>> FindWrittenControls(
    absl::string_view chat_template, const nlohmann::json& variables,
    std::span<const absl::string_view> tokens, const std::function<bool(size_t)>& is_candidate);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_CONTROLS_H_

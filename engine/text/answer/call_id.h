#ifndef ANNULUS_ENGINE_TEXT_ANSWER_CALL_ID_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_CALL_ID_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// An id for call `index` of an answer: 9 letters and digits, since some templates (Mistral's) take
// no other ids. Equal arguments give equal ids.
std::string MakeCallId(uint64_t salt, int32_t index);

// Whether an id that a model wrote can be given to clients: 1 to 64 visible ASCII characters.
bool IsUsableCallId(absl::string_view id);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_CALL_ID_H_

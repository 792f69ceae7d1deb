#ifndef ANNULUS_ENGINE_PROMPT_ENCODER_STREAM_H_
#define ANNULUS_ENGINE_PROMPT_ENCODER_STREAM_H_

#include <memory>

#include "engine/api/chat.h"
#include "engine/base/work_meter.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// A stream that encodes a document's text by Tokenizer's EncodePlain. `tokenizer` and `cancel` must
// outlive it.
std::unique_ptr<TextStream> NewEncoderStream(const Tokenizer& tokenizer, const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PROMPT_ENCODER_STREAM_H_

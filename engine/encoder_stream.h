#ifndef ANNULUS_ENGINE_ENCODER_STREAM_H_
#define ANNULUS_ENGINE_ENCODER_STREAM_H_

#include <memory>

#include "engine/api/chat.h"
#include "engine/base/work_meter.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// A document's text for `tokenizer`, by EncodePlain. `tokenizer` and `cancel` must outlive it.
std::unique_ptr<TextStream> NewEncoderStream(const Tokenizer& tokenizer, const CancelFlag& cancel);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENCODER_STREAM_H_

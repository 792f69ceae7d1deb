#ifndef ANNULUS_ENGINE_ENCODER_STREAM_H_
#define ANNULUS_ENGINE_ENCODER_STREAM_H_

#include <memory>

#include "engine/api.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// A text for `tokenizer`, which must outlive it, without what is added to whole texts.
std::unique_ptr<TextStream> NewEncoderStream(const Tokenizer& tokenizer);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_ENCODER_STREAM_H_

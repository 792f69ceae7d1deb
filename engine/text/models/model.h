#ifndef ANNULUS_ENGINE_TEXT_MODELS_MODEL_H_
#define ANNULUS_ENGINE_TEXT_MODELS_MODEL_H_

#include <cstdint>
#include <memory>

#include "engine/text/stages/text_stage.h"

namespace annulus {

// Converts pieces of text to ids: the last stage of encoding. Immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // Creates a stage for one text. The stage encodes each stretch independently and appends the ids
  // to those of `state`. The model and `state` must outlive it.
  virtual std::unique_ptr<TextStage> NewStage(EncodeState* state) const = 0;

  // The id for text without tokens; -1: none.
  virtual int32_t unknown() const = 0;

  // The kind of model, for people.
  virtual const char* kind() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_MODEL_H_

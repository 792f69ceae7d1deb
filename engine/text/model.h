#ifndef ANNULUS_ENGINE_TEXT_MODEL_H_
#define ANNULUS_ENGINE_TEXT_MODEL_H_

#include <cstdint>
#include <memory>

#include "engine/text/text_stage.h"

namespace annulus {

// What turns pieces of text into ids: the last stage of encoding. Immutable and thread-safe.
class Model {
 public:
  virtual ~Model() = default;

  // A stage for one text: appends the ids of each stretch, encoded by itself, to those of `state`.
  // The model and `state` must outlive it.
  virtual std::unique_ptr<TextStage> NewStage(EncodeState* state) const = 0;

  // The id that stands for text without tokens; -1: none.
  virtual int32_t unknown() const = 0;

  // What it is, for people.
  virtual const char* kind() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODEL_H_

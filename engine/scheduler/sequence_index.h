#ifndef ANNULUS_ENGINE_SCHEDULER_SEQUENCE_INDEX_H_
#define ANNULUS_ENGINE_SCHEDULER_SEQUENCE_INDEX_H_

#include <unordered_map>

#include "engine/scheduler/scheduler.h"
#include "kernels/base/check.h"

namespace annulus {

// The sequences that run, by id.
class SequenceIndex {
 public:
  explicit SequenceIndex(const EngineState& state) {
    for (const auto& sequence : state.running) sequences_[sequence->id] = sequence.get();
  }

  Sequence& at(SequenceId id) const {
    const auto found = sequences_.find(id);
    ANNULUS_CHECK(found != sequences_.end()) << "no sequence " << id << " runs";
    return *found->second;
  }

 private:
  std::unordered_map<SequenceId, Sequence*> sequences_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_SEQUENCE_INDEX_H_

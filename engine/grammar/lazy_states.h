#ifndef ANNULUS_ENGINE_GRAMMAR_LAZY_STATES_H_
#define ANNULUS_ENGINE_GRAMMAR_LAZY_STATES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "engine/grammar/machine.h"

namespace annulus {

using StateId = uint32_t;

// The state without threads: the text cannot be read so.
inline constexpr StateId kDeadState = 0;

// A machine made deterministic as far as texts have needed it, as RE2 does for regular expressions
// (Cox, "Regular Expression Matching in the Wild", 2010): a state is the set of threads that have
// read the same text. Stacks are lists that share their tails. Not thread-safe.
class LazyStates {
 public:
  // Steps of one text's calls: so many at once, a few milliseconds, and so many per call in the
  // long run, so that no constraint delays each token of those that share its thread.
  static constexpr int64_t kMaxSteps = int64_t{1} << 18;
  static constexpr int64_t kStepsPerCall = int64_t{1} << 14;
  // By about so much a call may let the memory grow.
  static constexpr size_t kMostGrowth = size_t{16} << 20;
  static constexpr int32_t kNoMask = -1;

  // `machine` must outlive this. `longest`: no token has more bytes; see Representative.
  LazyStates(const Machine* machine, uint32_t longest);

  StateId start() const { return start_; }
  bool accepts(StateId state) const { return states_[state].accepts; }
  // Whether the text goes on with reasoning alone.
  bool thinks(StateId state) const { return states_[state].thinks; }

  // Begins a call for a text. `steps`: what the text may still take, kMaxSteps at first; must live
  // as long as the call. An error of an earlier call is forgotten: it concerned that call's text
  // alone.
  void Begin(int64_t& steps) {
    steps_left_ = &steps;
    steps = std::min(kMaxSteps, steps + kStepsPerCall);
    most_bytes_ = bytes() + kMostGrowth;
    status_ = start_status_;
  }
  // RESOURCE_EXHAUSTED if the call took too many steps, threads or bytes; its results are then
  // worthless.
  const absl::Status& status() const { return status_; }

  // The state after another byte.
  StateId Next(StateId state, uint8_t byte) {
    const StateId next = next_[state * classes_ + machine_.class_of[byte]];
    return next != kUnknown ? next : Find(state, machine_.class_of[byte]);
  }

  // A state that allows the same texts of up to `longest` bytes, and the same for all states that
  // only differ in counts far from their limits.
  StateId Representative(StateId state);

  // How many plain characters in a row can be read as turns of one loop; kUnbounded for any number.
  uint32_t plain_room(StateId state) const { return states_[state].plain_room; }
  // Whether threads outside of such loops can begin a plain character.
  bool takes_plain_otherwise(StateId state) const { return states_[state].takes_plain_otherwise; }

  // The groups of bytes (ByteGroup) of which each leads back to the state.
  uint8_t LoopGroups(StateId state);

  // A number that the owner keeps for a state.
  int32_t& mask_of(StateId state) { return states_[state].mask; }

  // Whether the state and the stacks below it take at most `most` bytes of the memory.
  bool IsWithin(StateId state, size_t most) const;

  // Drops all states but the first and those in `kept`, whose ids it replaces.
  void KeepOnly(std::span<StateId> kept);

  size_t bytes() const;

 private:
  static constexpr StateId kUnknown = ~StateId{0};
  static constexpr uint32_t kNoFrame = 0;

  // What is on a stack: where a call or a loop goes on.
  struct Frame {
    uint32_t parent = kNoFrame;
    NodeId node = kReturnNode;  // kCall or kRepeat
    uint32_t count = 0;         // kRepeat: finished turns
    bool operator==(const Frame&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Frame& frame) {
      return H::combine(std::move(hash), frame.parent, frame.node, frame.count);
    }
  };
  // Always at a node of kBytes.
  struct Thread {
    NodeId node = kReturnNode;
    uint32_t frame = kNoFrame;
    auto operator<=>(const Thread&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Thread& thread) {
      return H::combine(std::move(hash), thread.node, thread.frame);
    }
  };
  struct State {
    uint32_t begin = 0;  // in threads_
    uint32_t end = 0;
    bool accepts = false;
    bool thinks = false;
    bool takes_plain_otherwise = false;
    bool knows_loops = false;
    uint8_t loops = 0;
    uint32_t plain_room = 0;
    StateId representative = kUnknown;
    int32_t mask = kNoMask;
  };
  struct StateHash {
    const LazyStates* states;
    size_t operator()(StateId id) const;
  };
  struct StateEqual {
    const LazyStates* states;
    bool operator()(StateId a, StateId b) const;
  };

  void Reset();
  StateId Find(StateId state, uint8_t byte_class);
  uint32_t FrameOf(const Frame& frame);
  // Adds the threads that are reached from `thread` without reading to `found_`.
  void Close(Thread thread);
  void Turn(NodeId repeat, uint32_t parent, uint32_t count);  // a loop after `count` turns
  bool Count(int64_t steps);
  // The state of `found_`.
  StateId Intern();
  void Describe(State* state) const;
  uint32_t RepresentativeFrame(uint32_t frame);
  uint32_t Moved(const std::vector<Frame>& frames, uint32_t frame, std::vector<uint32_t>* moved);

  const Machine& machine_;
  const size_t classes_;
  const uint32_t longest_;

  std::vector<Frame> frames_;              // kNoFrame: the bottom
  std::vector<uint32_t> representatives_;  // of frames; kUnknown
  absl::flat_hash_map<Frame, uint32_t> frame_ids_;
  std::vector<Thread> threads_;
  std::vector<State> states_;
  std::vector<StateId> next_;  // [states, classes]
  absl::flat_hash_set<StateId, StateHash, StateEqual> state_ids_;
  StateId start_ = kDeadState;

  // Of the state that is being found.
  std::vector<Thread> found_;
  bool found_accepts_ = false;
  std::vector<Thread> open_;
  std::vector<Thread> seen_few_;  // searched one by one; the set takes over when there are many
  absl::flat_hash_set<Thread> seen_many_;

  int64_t first_steps_ = kMaxSteps;  // of finding the first state
  int64_t* steps_left_ = &first_steps_;
  size_t most_bytes_ = kMostGrowth;
  absl::Status status_;
  absl::Status start_status_;  // of finding the first state
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_LAZY_STATES_H_

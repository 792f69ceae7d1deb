#include "engine/grammar/lazy_states.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/token_trie.h"

namespace annulus {
namespace {

using NodeKind = Node::Kind;

constexpr size_t kFewSeen = 24;

}  // namespace

size_t LazyStates::StateHash::operator()(StateId id) const {
  const State& state = states->states_[id];
  const absl::Span<const Thread> threads(states->threads_.data() + state.begin,
                                         state.end - state.begin);
  return absl::HashOf(threads, state.accepts);
}

bool LazyStates::StateEqual::operator()(StateId a, StateId b) const {
  const State& one = states->states_[a];
  const State& other = states->states_[b];
  const auto begin = states->threads_.begin();
  return one.accepts == other.accepts &&
         std::equal(begin + one.begin, begin + one.end, begin + other.begin, begin + other.end);
}

LazyStates::LazyStates(const Machine* machine, uint32_t longest)
    : machine_(*machine),
      classes_(machine->samples.size()),
      longest_(longest),
      state_ids_(0, StateHash{this}, StateEqual{this}) {
  Reset();
  Close({machine_.start, kNoFrame});
  start_ = Intern();
  start_status_ = status_;
}

void LazyStates::Reset() {
  state_ids_.clear();  // first: hashes look at the rest
  frame_ids_.clear();
  frames_.assign(1, Frame());
  representatives_.assign(1, kNoFrame);
  threads_.clear();
  states_.clear();
  std::vector<StateId>().swap(next_);  // gives its memory back
  found_.clear();
  found_accepts_ = false;
  Intern();  // kDeadState
  std::fill(next_.begin(), next_.end(), kDeadState);
}

bool LazyStates::Count(int64_t steps) {
  *steps_left_ -= steps;
  if (*steps_left_ < 0 && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("the output constraint takes more than ", kStepsPerCall,
                     " steps for each token: it is too ambiguous; use fewer nested repetitions"));
  }
  return status_.ok();
}

uint32_t LazyStates::FrameOf(const Frame& frame) {
  const auto [known, added] = frame_ids_.try_emplace(frame, static_cast<uint32_t>(frames_.size()));
  if (added) {
    frames_.push_back(frame);
    representatives_.push_back(kUnknown);
  }
  return known->second;
}

void LazyStates::Turn(NodeId repeat, uint32_t parent, uint32_t count) {
  const Node& node = machine_.nodes[repeat];
  if (count >= node.least) open_.push_back({node.next, parent});
  if (count < node.most) open_.push_back({node.body, FrameOf({parent, repeat, count})});
}

void LazyStates::Close(Thread thread) {
  open_.assign(1, thread);
  while (!open_.empty() && Count(1)) {
    const Thread at = open_.back();
    open_.pop_back();
    if (seen_few_.size() < kFewSeen) {
      if (std::find(seen_few_.begin(), seen_few_.end(), at) != seen_few_.end()) continue;
      seen_few_.push_back(at);
    } else {
      if (seen_many_.empty()) seen_many_.insert(seen_few_.begin(), seen_few_.end());
      if (!seen_many_.insert(at).second) continue;
    }
    const Node& node = machine_.nodes[at.node];
    switch (node.kind) {
      case NodeKind::kBytes:
        found_.push_back(at);
        break;
      case NodeKind::kSplit:
        for (uint32_t i = node.begin; i < node.end; ++i) {
          open_.push_back({machine_.targets[i], at.frame});
        }
        break;
      case NodeKind::kCall: {
        // Without a frame where the call is the last thing that its rule does.
        const uint32_t frame =
            node.next == kReturnNode ? at.frame : FrameOf({at.frame, at.node, 0});
        open_.push_back({machine_.rules[node.rule], frame});
        break;
      }
      case NodeKind::kRepeat:
        Turn(at.node, at.frame, 0);
        break;
      case NodeKind::kReturn: {
        if (at.frame == kNoFrame) {
          found_accepts_ = true;
          break;
        }
        const Frame frame = frames_[at.frame];
        const Node& from = machine_.nodes[frame.node];
        if (from.kind == NodeKind::kCall) {
          open_.push_back({from.next, frame.parent});
        } else {
          // Without an upper limit only the lower one must be remembered.
          const uint32_t matters = from.most == kUnbounded ? from.least : from.most;
          Turn(frame.node, frame.parent, std::min(frame.count + 1, matters));
        }
        break;
      }
    }
  }
}

StateId LazyStates::Find(StateId state, uint8_t byte_class) {
  const uint8_t byte = machine_.samples[byte_class];
  found_.clear();
  found_accepts_ = false;
  seen_few_.clear();
  seen_many_.clear();
  for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) {
    const Thread thread = threads_[i];
    const Node& node = machine_.nodes[thread.node];
    if (!Count(1 + (node.end - node.begin) / 8)) return kDeadState;
    for (uint32_t edge = node.begin; edge < node.end; ++edge) {
      const ByteEdge& candidate = machine_.edges[edge];
      if (candidate.first <= byte && byte <= candidate.last) {
        Close({candidate.target, thread.frame});
      }
    }
  }
  if (found_.size() > kMaxReadings && status_.ok()) {
    status_ = absl::ResourceExhaustedError(
        absl::StrCat("the output constraint can be read in more than ", kMaxReadings,
                     " ways at once; use fewer nested repetitions and alternatives"));
  }
  if (!status_.ok()) return kDeadState;
  const StateId next = Intern();
  next_[state * classes_ + byte_class] = next;
  if (bytes() <= most_bytes_) return next;
  status_ = absl::ResourceExhaustedError(
      absl::StrCat("the output constraint takes more than ", kMostGrowth,
                   " bytes for a token: it is too ambiguous; use fewer nested repetitions"));
  return kDeadState;
}

StateId LazyStates::Intern() {
  std::sort(found_.begin(), found_.end());
  State state;
  state.begin = static_cast<uint32_t>(threads_.size());
  threads_.insert(threads_.end(), found_.begin(), found_.end());
  state.end = static_cast<uint32_t>(threads_.size());
  state.accepts = found_accepts_;
  const auto id = static_cast<StateId>(states_.size());
  states_.push_back(state);
  const auto [known, added] = state_ids_.insert(id);
  if (!added) {
    states_.pop_back();
    threads_.resize(state.begin);
    return *known;
  }
  Describe(&states_.back());
  next_.insert(next_.end(), classes_, kUnknown);
  return id;
}

void LazyStates::Describe(State* state) const {
  state->thinks = state->begin < state->end;
  for (uint32_t i = state->begin; i < state->end; ++i) {
    const Thread& thread = threads_[i];
    state->thinks = state->thinks && machine_.nodes[thread.node].thinks;
    const Frame& frame = frames_[thread.frame];
    const Node& loop = machine_.nodes[frame.node];
    if (loop.kind == NodeKind::kRepeat && loop.repeats_plain && loop.body == thread.node) {
      const uint32_t room = loop.most == kUnbounded ? kUnbounded : loop.most - frame.count;
      state->plain_room = std::max(state->plain_room, room);
    } else if (machine_.nodes[thread.node].takes_plain) {
      state->takes_plain_otherwise = true;
    }
  }
}

uint8_t LazyStates::LoopGroups(StateId state) {
  if (states_[state].knows_loops) return states_[state].loops;
  uint8_t leaves = 0;
  uint8_t loops = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const uint8_t group = ByteGroup(static_cast<uint8_t>(byte));
    if ((leaves & group) != 0) continue;
    loops |= group;
    if (Next(state, static_cast<uint8_t>(byte)) != state) leaves |= group;
    if (!status_.ok()) return 0;
  }
  states_[state].knows_loops = true;
  return states_[state].loops = loops & ~leaves;
}

uint32_t LazyStates::RepresentativeFrame(uint32_t frame) {
  std::vector<uint32_t> chain;
  while (representatives_[frame] == kUnknown) {
    chain.push_back(frame);
    frame = frames_[frame].parent;
  }
  uint32_t parent = representatives_[frame];
  for (auto each = chain.rbegin(); each != chain.rend(); ++each) {
    Frame moved = frames_[*each];
    moved.parent = parent;
    const Node& node = machine_.nodes[moved.node];
    if (node.kind == NodeKind::kRepeat) {
      // Each turn reads a byte at least, so limits this far away cannot be reached.
      int64_t ahead = node.most == kUnbounded ? std::numeric_limits<int64_t>::max()
                                              : int64_t{node.most} - moved.count - longest_ - 1;
      if (moved.count < node.least) {
        ahead = std::min(ahead, int64_t{node.least} - moved.count - longest_ - 1);
      }
      if (ahead > 0 && ahead != std::numeric_limits<int64_t>::max()) {
        moved.count += static_cast<uint32_t>(ahead);
      }
    }
    parent = representatives_[*each] = FrameOf(moved);
  }
  return parent;
}

StateId LazyStates::Representative(StateId state) {
  if (states_[state].representative != kUnknown) return states_[state].representative;
  found_.clear();
  for (uint32_t i = states_[state].begin; i < states_[state].end; ++i) {
    found_.push_back({threads_[i].node, RepresentativeFrame(threads_[i].frame)});
  }
  found_accepts_ = states_[state].accepts;
  const StateId result = Intern();
  states_[state].representative = result;
  states_[result].representative = result;
  return result;
}

bool LazyStates::IsWithin(StateId state, size_t most) const {
  const State& of = states_[state];
  const size_t threads = (of.end - of.begin) * sizeof(Thread);
  if (threads + frames_.size() * sizeof(Frame) <= most) return true;  // those of all states
  absl::flat_hash_set<uint32_t> frames;
  for (uint32_t i = of.begin; i < of.end; ++i) {
    for (uint32_t frame = threads_[i].frame; frame != kNoFrame && frames.insert(frame).second;) {
      frame = frames_[frame].parent;
    }
    if (threads + frames.size() * sizeof(Frame) > most) return false;
  }
  return true;
}

uint32_t LazyStates::Moved(const std::vector<Frame>& frames, uint32_t frame,
                           std::vector<uint32_t>* moved) {
  std::vector<uint32_t> chain;
  while ((*moved)[frame] == kUnknown) {
    chain.push_back(frame);
    frame = frames[frame].parent;
  }
  uint32_t parent = (*moved)[frame];
  for (auto each = chain.rbegin(); each != chain.rend(); ++each) {
    Frame copy = frames[*each];
    copy.parent = parent;
    parent = (*moved)[*each] = FrameOf(copy);
  }
  return parent;
}

void LazyStates::KeepOnly(std::span<StateId> kept) {
  const std::vector<Frame> frames = std::move(frames_);
  const std::vector<Thread> threads = std::move(threads_);
  const std::vector<State> states = std::move(states_);
  std::vector<uint32_t> moved(frames.size(), kUnknown);
  moved[kNoFrame] = kNoFrame;
  // The old states are needed no more, but their hashes are: take the table away from them.
  state_ids_ =
      absl::flat_hash_set<StateId, StateHash, StateEqual>(0, StateHash{this}, StateEqual{this});
  const StateId start = start_;
  Reset();
  const auto move = [&](StateId state) {
    found_.clear();
    for (uint32_t i = states[state].begin; i < states[state].end; ++i) {
      found_.push_back({threads[i].node, Moved(frames, threads[i].frame, &moved)});
    }
    found_accepts_ = states[state].accepts;
    return Intern();
  };
  start_ = move(start);
  for (StateId& state : kept) state = move(state);
}

size_t LazyStates::bytes() const {
  return frames_.capacity() * (2 * sizeof(Frame) + 3 * sizeof(uint32_t)) +
         threads_.capacity() * sizeof(Thread) + states_.capacity() * (sizeof(State) + 8) +
         next_.capacity() * sizeof(StateId);
}

}  // namespace annulus

#ifndef ANNULUS_ENGINE_GRAMMAR_MACHINE_H_
#define ANNULUS_ENGINE_GRAMMAR_MACHINE_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace annulus {

// A nondeterministic pushdown automaton over bytes: a recursive transition network (Woods, 1970)
// with counted loops. A thread of it is a node and a stack of frames. A text is accepted if some
// thread reaches kReturn with an empty stack after its last byte. Immutable once compiled.

using NodeId = uint32_t;
using RuleId = uint32_t;

// The node that leaves a rule or ends one turn of a loop. There is only this one.
inline constexpr NodeId kReturnNode = 0;
inline constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();
// Most ways to read a text at once. A machine that needs more somewhere is refused or, where that
// shows only while it runs, cannot go on there.
inline constexpr size_t kMaxReadings = 1024;

// Reads one byte of [first, last].
struct ByteEdge {
  uint8_t first = 0;
  uint8_t last = 0;
  NodeId target = kReturnNode;

  bool operator==(const ByteEdge&) const = default;
};

struct Node {
  enum class Kind : uint8_t {
    kReturn,
    kBytes,   // reads a byte by one of edges [begin, end)
    kSplit,   // goes on at every target [begin, end), without reading
    kCall,    // runs `rule`, then goes on at `next`
    kRepeat,  // runs `body` at least `least` and at most `most` times, then goes on at `next`
  };

  Kind kind = Kind::kReturn;
  // kRepeat: each turn reads one character, which may be any plain one (see IsPlainByte).
  bool repeats_plain = false;
  // kBytes: some edge reads a byte with which a plain character begins.
  bool takes_plain = false;
  // kBytes: the bytes are reasoning.
  bool thinks = false;
  uint32_t begin = 0;
  uint32_t end = 0;
  RuleId rule = 0;
  NodeId body = kReturnNode;
  NodeId next = kReturnNode;
  uint32_t least = 0;
  uint32_t most = 0;

  bool operator==(const Node&) const = default;
};

// Plain characters stand for themselves inside a JSON string: all but the quote, the backslash and
// the control characters below U+0020. This tells whether one can begin with `byte`.
constexpr bool IsPlainByte(uint8_t byte) {
  return (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') ||
         (byte >= 0xC2 && byte <= 0xF4);
}

struct Machine {
  std::vector<Node> nodes;
  std::vector<ByteEdge> edges;
  std::vector<NodeId> targets;  // of kSplit
  std::vector<NodeId> rules;    // where each rule begins
  NodeId start = kReturnNode;

  // Bytes that every edge treats alike have the same class. `samples`: one byte of each class.
  std::array<uint8_t, 256> class_of{};
  std::vector<uint8_t> samples;

  // The tokens that may be read in nodes that think, after which come the ids of the mark that ends
  // the reasoning. Below 0: any number.
  int32_t thinking_tokens = -1;
  std::vector<int32_t> thinking_end;

  // Bytes that some literal text needs: no other byte can take their place.
  std::bitset<256> literal_bytes;

  bool operator==(const Machine&) const = default;
};

// The memory that a machine takes.
inline size_t MachineBytes(const Machine& machine) {
  return sizeof(machine) + machine.nodes.capacity() * sizeof(Node) +
         machine.edges.capacity() * sizeof(ByteEdge) +
         (machine.targets.capacity() + machine.rules.capacity()) * sizeof(NodeId);
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_MACHINE_H_

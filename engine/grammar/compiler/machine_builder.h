#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_BUILDER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/character_class.h"
#include "engine/grammar/compiler/compile_meter.h"
#include "engine/grammar/machine.h"

namespace annulus {

// How characters are spelled: as UTF-8, or as inside a JSON string in its shortest form (the quote,
// the backslash and control characters are escaped; nothing else is).
enum class Spelling : uint8_t { kPlain, kJson };

// Builds a machine from its end to its start: each method returns a node that reads something and
// then goes on at `next`. Counts a step for each node and asks for its memory first. The first
// error stays: later calls do nothing and return kReturnNode, so callers look at ok() only in loops
// and before they recurse.
class MachineBuilder {
 public:
  // Nodes, edges and targets of one machine, together.
  static constexpr size_t kMaxParts = size_t{1} << 20;

  // `meter` must outlive the builder.
  explicit MachineBuilder(CompileMeter* meter);

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Records the error if it is the first.
  void Fail(const absl::Status& status);
  // Counts steps of the caller's own work. Returns ok().
  bool Step(int64_t steps = 1);
  // Asks for memory of the caller's own, beside what the steps may take. Returns ok().
  bool Take(size_t bytes);
  void Give(size_t bytes) { meter_.Give(bytes); }

  NodeId Bytes(const std::vector<ByteEdge>& edges, bool thinks = false);
  NodeId Byte(char byte, NodeId next);
  // Without targets: a node from which nothing can be read.
  NodeId Split(const std::vector<NodeId>& targets);
  NodeId Call(RuleId rule, NodeId next);
  // `body` ends in kReturnNode and reads at least one byte. `most`: kUnbounded for no limit.
  NodeId Repeat(NodeId body, uint32_t least, uint32_t most, bool plain, NodeId next);

  // `body` any number of times, or at least once: make the loop, build a body that goes on at it,
  // then close it. Returns where a loop that may be skipped begins.
  NodeId OpenLoop();
  void CloseLoop(NodeId loop, NodeId body, NodeId next);

  // Reads exactly `text`.
  NodeId Literal(absl::string_view text, NodeId next);
  // Reads one of `texts`, which share nodes where their beginnings are equal.
  NodeId OneOf(std::vector<std::string> texts, NodeId next);
  // Reads one character of the class.
  NodeId Character(const CharacterClass& members, Spelling spelling, NodeId next);
  // Appends edges that do so, for a node that goes on in several ways.
  void AppendCharacter(const CharacterClass& members, Spelling spelling, NodeId next,
                       std::vector<ByteEdge>* edges);

  // A rule that others may call before it is defined.
  RuleId DeclareRule();
  void DefineRule(RuleId rule, NodeId start);

  // Ends the building.
  Machine Take(NodeId start);

 private:
  NodeId Add(Node node, size_t parts);
  // A node that reads the `bytes` continuation bytes of the code points in `ranges`, whose higher
  // bits have been read.
  NodeId Continuation(const std::vector<CodePoints>& ranges, int bytes, NodeId next);
  // Appends the edges of one byte each that tell apart the ranges by the bits above 6 * `bytes`.
  void AppendEdges(const std::vector<CodePoints>& ranges, int bytes, uint8_t prefix, NodeId next,
                   std::vector<ByteEdge>* edges);
  void AppendUtf8(const CharacterClass& members, NodeId next, std::vector<ByteEdge>* edges);
  void AppendEscapes(const CharacterClass& members, NodeId next, std::vector<ByteEdge>* edges);

  CompileMeter& meter_;
  absl::Status status_;
  Machine machine_;
  size_t parts_ = 0;
  std::map<std::tuple<NodeId, int, std::vector<CodePoints>>, NodeId> continuations_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_BUILDER_H_

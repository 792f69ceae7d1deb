// Regular expressions as parts of a machine: regex_tree.h.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/compiler/regex_tree.h"

namespace annulus {
namespace {

using Kind = RegexTree::Kind;

// A counted loop needs a body that reads something. Other bodies are written out as often.
constexpr uint32_t kMaxEmptyRepeats = 64;

bool MayBeEmpty(const RegexTree& tree) {
  switch (tree.kind) {
    case Kind::kCharacter:
      return false;
    case Kind::kChoice:
      return std::any_of(tree.children.begin(), tree.children.end(), MayBeEmpty);
    case Kind::kRepeat:
      return tree.least == 0 || MayBeEmpty(tree.children[0]);
    default:
      return std::all_of(tree.children.begin(), tree.children.end(), MayBeEmpty);
  }
}

bool IsPlain(const RegexTree& tree) {
  static const CharacterClass plain({{0x20, '!'}, {'#', '['}, {']', 0x10FFFF}});
  return tree.kind == Kind::kCharacter && tree.members.Covers(plain);
}

// At most `most` times, for bodies that may be empty: then the least count says nothing.
NodeId EmitOptional(const RegexTree& body, uint32_t most, Spelling spelling, NodeId next,
                    MachineBuilder* builder) {
  if (most > kMaxEmptyRepeats) {
    builder->Fail(absl::InvalidArgumentError(
        absl::StrCat("a regular expression repeats up to ", most,
                     " times an expression that can be empty; allowed: ", kMaxEmptyRepeats)));
  }
  NodeId start = next;
  for (uint32_t i = 0; i < most && builder->ok(); ++i) {
    start = builder->Split({EmitRegex(body, spelling, start, builder), next});
  }
  return start;
}

// Any number of times, or at least once.
NodeId EmitLoop(const RegexTree& body, bool may_skip, Spelling spelling, NodeId next,
                MachineBuilder* builder) {
  const NodeId loop = builder->OpenLoop();
  const NodeId start = EmitRegex(body, spelling, loop, builder);
  builder->CloseLoop(loop, start, next);
  return may_skip ? loop : start;
}

NodeId EmitRepeat(const RegexTree& tree, Spelling spelling, NodeId next, MachineBuilder* builder) {
  const RegexTree& body = tree.children[0];
  if (tree.most == 0) return next;
  const bool plain = IsPlain(body);
  if (tree.most == kUnbounded && tree.least <= 1 && !plain) {
    return EmitLoop(body, tree.least == 0, spelling, next, builder);
  }
  if (tree.most == 1) {
    const NodeId start = EmitRegex(body, spelling, next, builder);
    return tree.least == 1 ? start : builder->Split({start, next});
  }
  if (MayBeEmpty(body)) {
    if (tree.most != kUnbounded) return EmitOptional(body, tree.most, spelling, next, builder);
    return EmitLoop(body, /*may_skip=*/true, spelling, next, builder);
  }
  return builder->Repeat(EmitRegex(body, spelling, kReturnNode, builder), tree.least, tree.most,
                         plain, next);
}

}  // namespace

NodeId EmitRegex(const RegexTree& tree, Spelling spelling, NodeId next, MachineBuilder* builder) {
  if (!builder->Step()) return kReturnNode;
  switch (tree.kind) {
    case Kind::kCharacter:
      return builder->Character(tree.members, spelling, next);
    case Kind::kChoice: {
      std::vector<NodeId> targets;
      for (const RegexTree& child : tree.children) {
        targets.push_back(EmitRegex(child, spelling, next, builder));
      }
      return builder->Split(targets);
    }
    case Kind::kRepeat:
      return EmitRepeat(tree, spelling, next, builder);
    default:
      for (auto child = tree.children.rbegin(); child != tree.children.rend(); ++child) {
        next = EmitRegex(*child, spelling, next, builder);
      }
      return next;
  }
}

}  // namespace annulus

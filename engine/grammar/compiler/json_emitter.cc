#include "engine/grammar/compiler/json_emitter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/compiler/regex_tree.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

// What a NameTrie and its classes take for a byte of the names.
constexpr size_t kBytesPerNameByte = 448;
constexpr ByteEdge kHexadecimal[] = {{'0', '9'}, {'A', 'F'}, {'a', 'f'}};

// `digits` hexadecimal digits of any value.
NodeId Hexadecimal(int digits, NodeId next, MachineBuilder* builder) {
  for (int i = 0; i < digits; ++i) {
    std::vector<ByteEdge> edges(std::begin(kHexadecimal), std::end(kHexadecimal));
    for (ByteEdge& edge : edges) edge.target = next;
    next = builder->Bytes(edges);
  }
  return next;
}

}  // namespace

JsonEmitter::JsonEmitter(MachineBuilder* builder, JsonForm form)
    : builder_(*builder), form_(std::move(form)) {}

// Without what ends a name or a value there, or begins a text.
const CharacterClass& JsonEmitter::BareCharacters() {
  static const auto& bare = *new CharacterClass(CharacterClass({{0, ' '},
                                                                {'"', '"'},
                                                                {',', ','},
                                                                {':', ':'},
                                                                {'<', '<'},
                                                                {'[', '['},
                                                                {']', ']'},
                                                                {'{', '{'},
                                                                {'}', '}'},
                                                                {0x7F, 0xA0}})
                                                    .Complement());
  return bare;
}

NodeId JsonEmitter::Quote(NodeId next) {
  return form_.quote.empty() ? builder_.Split({}) : builder_.Literal(form_.quote, next);
}

NodeId JsonEmitter::WhiteSpace(NodeId next) {
  if (const auto known = white_space_.find(next); known != white_space_.end()) {
    return known->second;
  }
  const NodeId blank = builder_.Bytes({{' ', ' ', kReturnNode}, {'\t', '\t', kReturnNode}});
  const NodeId indent = builder_.Repeat(blank, 0, kMaxIndent, /*plain=*/false, next);
  const NodeId some = builder_.Bytes({{' ', ' ', next},
                                      {'\n', '\n', indent},
                                      {'\r', '\r', builder_.Bytes({{'\n', '\n', indent}})}});
  return white_space_[next] = builder_.Split({next, some});
}

NodeId JsonEmitter::Number(bool whole, NodeId next) {
  constexpr char kWhole[] = "-?(?:0|[1-9][0-9]*)";
  const std::string pattern =
      whole ? kWhole : absl::StrCat(kWhole, "(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?");
  const auto tree = ParseRegex(pattern, RegexMatch::kWhole);
  ANNULUS_CHECK(tree.ok()) << tree.status().ToString();
  return EmitRegex(*tree, Spelling::kPlain, next, &builder_);
}

NodeId JsonEmitter::FreeCharacter() {
  if (free_character_) return *free_character_;
  if (!form_.escapes) {
    const CharacterClass all({{0, 0xD7FF}, {0xE000, 0x10FFFF}});
    const CharacterClass without_mark({{0, '<' - 1}, {'<' + 1, 0xD7FF}, {0xE000, 0x10FFFF}});
    const CharacterClass& members = form_.quote_is_text ? without_mark : all;
    free_character_ = builder_.Character(members, Spelling::kPlain, kReturnNode);
    return *free_character_;
  }
  // RFC 8259, section 7. Half of a surrogate pair alone is no character: most parsers refuse it.
  const NodeId low = builder_.Literal(
      "\\u", builder_.Bytes({{'d', 'd',
                              builder_.Bytes({{'c', 'f', Hexadecimal(2, 0, &builder_)},
                                              {'C', 'F', Hexadecimal(2, 0, &builder_)}})},
                             {'D', 'D',
                              builder_.Bytes({{'c', 'f', Hexadecimal(2, 0, &builder_)},
                                              {'C', 'F', Hexadecimal(2, 0, &builder_)}})}}));
  const NodeId high = Hexadecimal(2, low, &builder_);
  const NodeId two = Hexadecimal(2, kReturnNode, &builder_);
  const NodeId after_d =
      builder_.Bytes({{'0', '7', two}, {'8', '9', high}, {'A', 'B', high}, {'a', 'b', high}});
  const NodeId three = Hexadecimal(1, two, &builder_);
  const NodeId number = builder_.Bytes({{'0', '9', three},
                                        {'A', 'C', three},
                                        {'D', 'D', after_d},
                                        {'E', 'F', three},
                                        {'a', 'c', three},
                                        {'d', 'd', after_d},
                                        {'e', 'f', three}});
  std::vector<ByteEdge> escapes{{'u', 'u', number}};
  for (const char letter : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
    const auto byte = static_cast<uint8_t>(letter);
    escapes.push_back({byte, byte, kReturnNode});
  }
  std::vector<ByteEdge> edges{{'\\', '\\', builder_.Bytes(escapes)}};
  const CharacterClass raw = CharacterClass({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}).Complement();
  builder_.AppendCharacter(raw, Spelling::kPlain, kReturnNode, &edges);
  free_character_ = builder_.Bytes(edges);
  return *free_character_;
}

NodeId JsonEmitter::StringRest(NodeId next) {
  return builder_.Repeat(FreeCharacter(), 0, kUnbounded,
                         /*plain=*/!form_.quote_is_text, Quote(next));
}

NodeId JsonEmitter::String(uint32_t least, uint32_t most, NodeId next) {
  if (most < least) return builder_.Split({});
  const NodeId end = Quote(next);
  if (most == 0) return Quote(end);
  return Quote(builder_.Repeat(FreeCharacter(), least, most,
                               /*plain=*/!form_.quote_is_text, end));
}

NodeId JsonEmitter::Name(absl::string_view name, NodeId next) {
  if (form_.escapes) return builder_.Literal(JsonQuoted(name), Colon(next));
  const NodeId quoted = Quote(builder_.Literal(name, Quote(Colon(next))));
  bool bare = form_.bare_names && !name.empty();
  for (size_t position = 0; bare && position < name.size();) {
    bare = BareCharacters().Contains(NextCodePoint(name, &position));
  }
  return bare ? builder_.Literal(name, Colon(next)) : quoted;
}

// Of a bare name, with its colon.
NodeId JsonEmitter::BareRest(NodeId next) {
  const NodeId one = builder_.Character(BareCharacters(), Spelling::kPlain, kReturnNode);
  return builder_.Repeat(one, 0, kUnbounded, /*plain=*/false, builder_.Byte(':', next));
}

NodeId JsonEmitter::Colon(NodeId next) { return builder_.Byte(':', WhiteSpace(next)); }

NodeId JsonEmitter::Close(char bracket, NodeId next) {
  return WhiteSpace(builder_.Byte(bracket, next));
}

NodeId JsonEmitter::Constant(const JsonTree& value, NodeId next) {
  if (value.is_string() && !form_.escapes) {
    if (form_.quote_is_text && absl::StrContains(value.text, '<')) return builder_.Split({});
    return Quote(builder_.Literal(value.text, Quote(next)));
  }
  if (!value.is_array() && !value.is_object()) {
    return builder_.Literal(CompactJson(value, /*sorted=*/false), next);
  }
  const char open = value.is_array() ? '[' : '{';
  const char close = value.is_array() ? ']' : '}';
  if (value.items.empty()) return builder_.Byte(open, builder_.Byte(close, next));
  NodeId node = Close(close, next);
  for (size_t i = value.items.size(); i > 0 && builder_.ok(); --i) {
    node = Constant(value.items[i - 1], node);
    if (value.is_object()) node = Name(value.members->keys[i - 1], node);
    node = WhiteSpace(node);
    if (i > 1) node = builder_.Byte(',', node);
  }
  return builder_.Byte(open, node);
}

NodeId JsonEmitter::Array(const std::vector<RuleId>& prefix, std::optional<RuleId> rest,
                          uint32_t least, uint32_t most, NodeId next) {
  if (most < least) return builder_.Split({});
  const NodeId empty = builder_.Byte(']', next);
  const NodeId close = WhiteSpace(empty);
  const auto later = [&](RuleId rule, NodeId after) {
    return builder_.Byte(',', WhiteSpace(builder_.Call(rule, after)));
  };
  // What follows `count` elements, from the last to the first.
  const uint32_t fixed = std::min(static_cast<uint32_t>(prefix.size()), most);
  NodeId after = least <= fixed ? close : builder_.Split({});
  uint32_t first_free = std::max(fixed, 1u);  // elements read before the counted loop
  if (rest && most > first_free) {
    after = builder_.Repeat(later(*rest, kReturnNode), least > first_free ? least - first_free : 0,
                            most == kUnbounded ? kUnbounded : most - first_free, /*plain=*/false,
                            close);
  } else if (least <= first_free) {
    after = close;
  }
  for (uint32_t count = fixed; count > 1 && builder_.ok(); --count) {
    std::vector<NodeId> targets{later(prefix[count - 1], after)};
    if (least < count) targets.push_back(close);
    after = builder_.Split(targets);
  }
  std::vector<NodeId> targets;
  if (fixed > 0) {
    targets.push_back(builder_.Call(prefix[0], after));
  } else if (rest && most > 0) {
    targets.push_back(builder_.Call(*rest, after));
  }
  if (least == 0) targets.push_back(empty);
  return builder_.Byte('[', WhiteSpace(builder_.Split(targets)));
}

NodeId JsonEmitter::Object(const std::vector<EmittedMember>& members,
                           std::vector<EmittedNames> others, NodeId next) {
  const NodeId empty = builder_.Byte('}', next);
  const NodeId close = WhiteSpace(empty);
  // After all members: other ones, which lead back here.
  const NodeId dead = builder_.Split({});
  const NodeId last = builder_.OpenLoop();
  NodeId names = OtherNames(members, others, last);
  builder_.CloseLoop(last, builder_.Byte(',', WhiteSpace(names)), close);
  NodeId after = last;
  bool may_close = true;
  for (size_t i = members.size(); i > 0 && builder_.ok(); --i) {
    const EmittedMember& member = members[i - 1];
    const NodeId own = Name(member.name, builder_.Call(member.value, after));
    names = member.required ? own : builder_.Split({own, names});
    may_close = may_close && !member.required;
    after = builder_.Split({builder_.Byte(',', WhiteSpace(names)), may_close ? close : dead});
  }
  return builder_.Byte('{', WhiteSpace(builder_.Split({may_close ? empty : dead, names})));
}

// The names of members and the prefixes, character by character.
struct JsonEmitter::NameTrie {
  struct Branch {
    std::map<char32_t, size_t> children;
    bool is_member = false;
    std::optional<size_t> names;  // the entry of `others` for what begins like this
  };
  std::vector<Branch> branches = std::vector<Branch>(1);  // children come after their parents

  Branch& At(absl::string_view name) {
    size_t at = 0;
    for (size_t position = 0; position < name.size();) {
      const char32_t c = NextCodePoint(name, &position);
      const auto [child, added] = branches[at].children.emplace(c, branches.size());
      at = child->second;
      if (added) branches.emplace_back();
    }
    return branches[at];
  }
};

NodeId JsonEmitter::OtherNames(const std::vector<EmittedMember>& members,
                               const std::vector<EmittedNames>& others, NodeId next) {
  NameTrie trie;
  size_t taken = 0;
  const auto enters = [&](absl::string_view name) {
    taken += name.size() * kBytesPerNameByte;
    return builder_.Step(StepsFor(name.size())) && builder_.Take(name.size() * kBytesPerNameByte);
  };
  for (size_t i = 0; i < others.size(); ++i) {
    if (!enters(others[i].prefix)) return kReturnNode;
    trie.At(others[i].prefix).names = i;
  }
  for (const EmittedMember& member : members) {
    if (!enters(member.name)) return kReturnNode;
    if (trie.branches.size() > MachineBuilder::kMaxParts) break;  // the nodes below are too many
    trie.At(member.name).is_member = true;
  }
  for (NameTrie::Branch& branch : trie.branches) {
    for (const auto& [c, child] : branch.children) {
      if (!trie.branches[child].names) trie.branches[child].names = branch.names;
    }
  }
  const NodeId dead = builder_.Split({});
  const bool bare = form_.bare_names;
  const Spelling spelling = form_.escapes ? Spelling::kJson : Spelling::kPlain;
  std::vector<NodeId> values;  // after the name's closing quote, or the colon of a bare name
  std::vector<NodeId> rests;   // within the name, once it differs from all others
  for (const EmittedNames& names : others) {
    const NodeId value = names.allowed ? builder_.Call(names.value, next) : dead;
    values.push_back(!names.allowed ? dead : bare ? WhiteSpace(value) : Colon(value));
    rests.push_back(!names.allowed ? dead
                    : bare         ? BareRest(values.back())
                                   : StringRest(values.back()));
  }
  std::vector<NodeId> nodes(trie.branches.size(), kReturnNode);
  for (size_t i = nodes.size(); i > 0 && builder_.ok(); --i) {
    const NameTrie::Branch& branch = trie.branches[i - 1];
    if (branch.children.empty() && !branch.is_member) {
      nodes[i - 1] = rests[*branch.names];
      continue;
    }
    std::vector<ByteEdge> edges;
    std::vector<CodePoints> taken;
    for (const auto& [c, child] : branch.children) {
      if (bare && !BareCharacters().Contains(c)) continue;
      taken.push_back({c, c});
      builder_.AppendCharacter(CharacterClass({{c, c}}), spelling, nodes[child], &edges);
    }
    if (bare) {
      const CharacterClass others = BareCharacters().Complement();
      taken.insert(taken.end(), others.ranges().begin(), others.ranges().end());
    }
    const CharacterClass free = CharacterClass(std::move(taken)).Complement();
    builder_.AppendCharacter(free, spelling, rests[*branch.names], &edges);
    const uint8_t end = bare ? ':' : '"';
    if (!branch.is_member && !(bare && i == 1)) edges.push_back({end, end, values[*branch.names]});
    nodes[i - 1] = builder_.Bytes(edges);
  }
  builder_.Give(taken);
  return bare ? nodes.front() : Quote(nodes.front());
}

RuleId JsonEmitter::AnyValue() {
  if (any_value_) return *any_value_;
  const RuleId rule = builder_.DeclareRule();
  any_value_ = rule;
  const NodeId value =
      builder_.Split({builder_.OneOf({"null", "true", "false"}, kReturnNode),
                      Number(false, kReturnNode), String(0, kUnbounded, kReturnNode),
                      Array({}, rule, 0, kUnbounded, kReturnNode), AnyObject(kReturnNode)});
  builder_.DefineRule(rule, value);
  return rule;
}

NodeId JsonEmitter::AnyObject(NodeId next) {
  return Object({}, {{.prefix = "", .value = AnyValue(), .allowed = true}}, next);
}

}  // namespace annulus

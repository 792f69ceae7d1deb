#include "engine/grammar/compiler/answer_emitter.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace annulus {
namespace {

constexpr uint32_t kMostSpaces = 16;  // between the parts of a call
constexpr uint32_t kMostLines = 4;    // before a mark that begins a line

}  // namespace

AnswerEmitter::AnswerEmitter(const AnswerShape& shape, const std::vector<CallTool>& tools,
                             std::optional<RuleId> form, const TokenTrie* tokens,
                             MachineBuilder* builder)
    : shape_(shape),
      format_(*shape.format),
      tools_(tools),
      form_(form),
      tokens_(tokens),
      builder_(*builder),
      json_(builder) {
  for (const CallTool& tool : tools) any_strict_ = any_strict_ || tool.strict;
}

NodeId AnswerEmitter::Emit() {
  const NodeId start = At({.state = shape_.in_reasoning ? format_.reasoning() : format_.start()});
  while (!pending_.empty() && builder_.ok()) {
    const auto [place, rule] = pending_.back();
    pending_.pop_back();
    builder_.DefineRule(rule, Body(place));
  }
  return start;
}

NodeId AnswerEmitter::At(const Place& place) {
  const auto [known, added] = nodes_.emplace(place, kReturnNode);
  if (!added) return known->second;
  builder_.Step();  // for the entries
  const RuleId rule = builder_.DeclareRule();
  pending_.emplace_back(place, rule);
  return known->second = builder_.Call(rule, kReturnNode);
}

NodeId AnswerEmitter::After(int state, const Place& place) {
  Place next = place;
  next.state = state;
  next.tight = false;
  next.thought = place.thought || StateOf(place.state).part == AnswerPart::kReasoning;
  return At(next);
}

NodeId AnswerEmitter::Body(const Place& place) {
  const State& state = StateOf(place.state);
  switch (state.part) {
    case AnswerPart::kText:
      return Text(place);
    case AnswerPart::kReasoning:
      return Reasoning(place);
    case AnswerPart::kHeader:
      return Header(place);
    case AnswerPart::kSpace:
      return Space(place);
    case AnswerPart::kName:
      return Name(place);
    case AnswerPart::kId:
      return Id(place);
    case AnswerPart::kArguments:
    case AnswerPart::kMarked: {
      const CallTool& tool = tools_[static_cast<size_t>(place.tool)];
      const NodeId arguments = builder_.Call(tool.arguments, Called(state.then));
      return place.tight ? arguments : Spaces(arguments);
    }
    case AnswerPart::kCall:
    case AnswerPart::kBareCall:
      return Call(place);
    case AnswerPart::kKey:
    case AnswerPart::kValue:
      return Dead();  // Pairs reads them
  }
  return Dead();
}

AnswerPart AnswerEmitter::PartOf(const Exit& exit) const {
  return exit.next < 0 ? AnswerPart::kText : StateOf(exit.next).part;
}

bool AnswerEmitter::Enabled(const Exit& exit) const {
  if (exit.thinks) return shape_.may_think;
  return (exit.flags & AnswerExit::kCall) == 0 || !tools_.empty();
}

NodeId AnswerEmitter::Mark(const Exit& exit, NodeId next) {
  if (!exit.token) return builder_.Literal(exit.mark, next);
  const std::string bytes = tokens_ == nullptr ? "" : tokens_->MarkOf(exit.mark);
  return bytes.empty() ? Dead() : builder_.Literal(bytes, next);
}

NodeId AnswerEmitter::Through(const Exit& exit, NodeId next) {
  return (exit.flags & AnswerExit::kKeep) != 0 ? next : Mark(exit, next);
}

NodeId AnswerEmitter::Spaces(NodeId next) {
  const NodeId space = builder_.Bytes({{' ', ' ', kReturnNode}, {'\t', '\n', kReturnNode}});
  return builder_.Repeat(space, 0, kMostSpaces, /*plain=*/false, next);
}

std::vector<ProseMark> AnswerEmitter::ProseMarks(const Place& place) {
  std::vector<ProseMark> marks;
  for (const Exit& exit : StateOf(place.state).exits) {
    if (!Enabled(exit)) continue;
    // What begins like a call without a mark may be another text, unless a tool is strict.
    if (PartOf(exit) == AnswerPart::kBareCall && !any_strict_) continue;
    ProseMark mark{.bytes = exit.mark,
                   .token = exit.token,
                   .line = (exit.flags & AnswerExit::kLine) != 0,
                   .start = (exit.flags & AnswerExit::kStart) != 0,
                   .target = After(exit.next, place),
                   .begins = (exit.flags & AnswerExit::kKeep) != 0};
    if (exit.token) mark.bytes = tokens_ == nullptr ? "" : tokens_->MarkOf(exit.mark);
    if (!mark.bytes.empty()) marks.push_back(std::move(mark));
  }
  return marks;
}

NodeId AnswerEmitter::Text(const Place& place) {
  return free() ? EmitProse(ProseMarks(place), {.may_end = true}, &builder_) : Formed(place);
}

// A text of the wanted form, or calls.
NodeId AnswerEmitter::Formed(const Place& place) {
  std::vector<NodeId> marks;
  for (const Exit& exit : StateOf(place.state).exits) {
    const bool thinks = exit.thinks;
    // Only models that have learned to think have a token for that mark.
    const bool opens = thinks ? exit.token && !place.called && !place.thought
                              : (exit.flags & AnswerExit::kCall) != 0;
    if (opens && Enabled(exit)) marks.push_back(Through(exit, After(exit.next, place)));
  }
  const NodeId line = builder_.Bytes({{'\n', '\n', kReturnNode}});
  std::vector<NodeId> ways{
      builder_.Repeat(line, 0, kMostLines, /*plain=*/false, builder_.Split(marks))};
  if (place.called) ways.push_back(kReturnNode);
  if (!place.called && form_.has_value() && !required()) {
    const NodeId form = builder_.Call(*form_, kReturnNode);
    ways.push_back(place.thought ? Spaces(form) : form);  // white space belongs to the mark
  }
  return builder_.Split(ways);
}

NodeId AnswerEmitter::Reasoning(const Place& place) {
  return EmitProse(ProseMarks(place), {.may_end = free(), .thinks = true}, &builder_);
}

// A header of the family, behind "assistant" if the prompt has not written that.
NodeId AnswerEmitter::Header(const Place& place) {
  const State& state = StateOf(place.state);
  std::vector<NodeId> ways;
  for (const absl::string_view header : format_.family().headers) {
    const int next = format_.Route(header);
    const AnswerPart part = StateOf(next).part;
    if (part == AnswerPart::kReasoning && (!shape_.may_think || (place.called && !free())))
      continue;
    if (part == AnswerPart::kText && !free() && (required() || place.called)) continue;
    if (part != AnswerPart::kArguments) {
      ways.push_back(HeaderText(header, state, After(next, place)));
      continue;
    }
    for (size_t i = 0; i < tools_.size(); ++i) {
      const std::string text = absl::StrReplaceAll(header, {{"NAME", tools_[i].name}});
      ways.push_back(HeaderText(text, state, At({.state = next, .tool = static_cast<int>(i)})));
    }
  }
  const NodeId header = builder_.Split(ways);
  return builder_.Split({header, builder_.Literal("assistant", header)});
}

NodeId AnswerEmitter::HeaderText(absl::string_view text, const State& state, NodeId next) {
  while (!text.empty()) {
    const auto ends = [text](const Exit& exit) { return absl::EndsWith(text, exit.mark); };
    const auto mark = std::find_if(state.exits.begin(), state.exits.end(), ends);
    if (mark != state.exits.end()) {
      next = Mark(*mark, next);
      text.remove_suffix(mark->mark.size());
    } else {
      next = builder_.Byte(text.back(), next);
      text.remove_suffix(1);
    }
  }
  return next;
}

NodeId AnswerEmitter::Space(const Place& place) {
  const State& state = StateOf(place.state);
  bool closes = false;  // a mark must end the call
  std::vector<NodeId> ways;
  for (const Exit& exit : state.exits) {
    if (PartOf(exit) == AnswerPart::kKey && place.tool != kNoTool) return Pairs(place);
    const bool to_text = exit.next >= 0 && PartOf(exit) == AnswerPart::kText;
    if (to_text && required() && !place.called) continue;
    closes = closes || to_text;
    ways.push_back(Through(exit, After(exit.next, place)));
  }
  if (state.then != AnswerFormat::kNone && !closes) ways.push_back(After(state.then, place));
  return Spaces(builder_.Split(ways));
}

NodeId AnswerEmitter::Name(const Place& place) {
  const State& state = StateOf(place.state);
  const AnswerFamily& family = format_.family();
  std::vector<NodeId> ways;
  const auto exits = [&](int tool, bool words) {
    std::vector<NodeId> ends;
    for (const Exit& exit : state.exits) {
      const bool keeps = (exit.flags & AnswerExit::kKeep) != 0;
      // The state of pairs also has the marks behind which there are no spaces.
      const bool skips = PartOf(exit) == AnswerPart::kKey || (exit.flags & AnswerExit::kEnds) != 0;
      if (skips || (!words && !keeps)) continue;
      ends.push_back(Through(exit, At({.state = exit.next, .tool = tool, .tight = keeps})));
    }
    return builder_.Split(ends);
  };
  if (place.tool != kNoTool) return exits(place.tool, /*words=*/false);
  for (size_t i = 0; i < tools_.size(); ++i) {
    NodeId node = exits(static_cast<int>(i), /*words=*/true);
    if (family.id_names) {
      const NodeId digit = builder_.Bytes({{'0', '9', kReturnNode}});
      node = builder_.Byte(':', builder_.Repeat(digit, 1, 4, /*plain=*/false, node));
    }
    node = builder_.Literal(tools_[i].name, node);
    ways.push_back(family.id_names ? builder_.Literal("functions.", node) : node);
  }
  for (const Exit& exit : state.exits) {
    if (PartOf(exit) != AnswerPart::kName || family.kind_word.empty()) continue;
    ways.push_back(builder_.Literal(family.kind_word, Through(exit, At({.state = exit.next}))));
  }
  return builder_.Split(ways);
}

NodeId AnswerEmitter::Id(const Place& place) {
  constexpr uint32_t kMostId = 64;
  std::vector<NodeId> ends;
  for (const Exit& exit : StateOf(place.state).exits) {
    ends.push_back(Through(exit, After(exit.next, place)));
  }
  const NodeId sign =
      builder_.Bytes({{'0', '9', kReturnNode}, {'A', 'Z', kReturnNode}, {'a', 'z', kReturnNode}});
  return builder_.Repeat(sign, 1, kMostId, /*plain=*/false, builder_.Split(ends));
}

NodeId AnswerEmitter::Member(absl::string_view name, NodeId value) {
  return builder_.Literal(absl::StrCat(JsonQuoted(name), ":"), json_.WhiteSpace(value));
}

// {"name": "NAME", "arguments": {..}}
NodeId AnswerEmitter::Call(const Place& place) {
  const AnswerFamily& family = format_.family();
  const NodeId end = json_.WhiteSpace(builder_.Byte('}', Called(StateOf(place.state).then)));
  std::vector<NodeId> ways;
  for (const CallTool& tool : tools_) {
    const NodeId arguments = Member(family.call_arguments, builder_.Call(tool.arguments, end));
    ways.push_back(
        builder_.Literal(JsonQuoted(tool.name), builder_.Byte(',', json_.WhiteSpace(arguments))));
  }
  NodeId members = Member(family.call_name, builder_.Split(ways));
  if (!family.call_id.empty()) {
    const NodeId digit = builder_.Bytes({{'0', '9', kReturnNode}});
    const NodeId behind = builder_.Byte('"', builder_.Byte(',', json_.WhiteSpace(members)));
    const NodeId id = builder_.Repeat(digit, 1, 4, /*plain=*/false, behind);
    members = Member(family.call_id, builder_.Byte('"', id));
  }
  return Spaces(builder_.Byte('{', json_.WhiteSpace(members)));
}

// <parameter=KEY>VALUE</parameter> for each argument, in the order of the schema, or for any.
NodeId AnswerEmitter::Pairs(const Place& place) {
  const State& pairs = StateOf(place.state);
  const Exit* open = nullptr;
  NodeId node = kReturnNode;
  for (const Exit& exit : pairs.exits) {
    if (PartOf(exit) == AnswerPart::kKey) open = &exit;
    if ((exit.flags & AnswerExit::kEnds) != 0) node = Spaces(Mark(exit, Called(exit.next)));
  }
  std::vector<const Exit*> to_value;  // the marks between key and value
  int state = open->next;
  while (StateOf(state).part != AnswerPart::kValue) {
    to_value.push_back(&StateOf(state).exits.front());
    state = to_value.back()->next;
  }
  const Exit& close = StateOf(state).exits.front();
  // The mark before a key, and the marks between that and `value`.
  const auto opened = [&](NodeId key) { return Spaces(Mark(*open, key)); };
  const auto behind_key = [&](NodeId value) {
    for (auto mark = to_value.rbegin(); mark != to_value.rend(); ++mark) {
      value = Mark(**mark, value);
      if (*mark != to_value.front()) value = Spaces(value);
    }
    return value;
  };
  const CallTool& tool = tools_[static_cast<size_t>(place.tool)];
  if (tool.any_pairs) {
    const RuleId pairs_left = builder_.DeclareRule();
    const NodeId start = builder_.Call(pairs_left, kReturnNode);
    const NodeId value = Value({.name = "", .is_text = true}, close, start);
    builder_.DefineRule(pairs_left, builder_.Split({opened(AnyKey(behind_key(value))), node}));
    return start;
  }
  for (auto each = tool.parameters.rbegin(); each != tool.parameters.rend(); ++each) {
    const NodeId pair = opened(builder_.Literal(each->name, behind_key(Value(*each, close, node))));
    node = each->required ? pair : builder_.Split({pair, node});
  }
  return node;
}

// A name of an argument, without what begins or ends a mark.
NodeId AnswerEmitter::AnyKey(NodeId next) {
  constexpr uint32_t kMostKey = 64;
  const CharacterClass signs({{0, ' '}, {'"', '"'}, {'<', '<'}, {'>', '>'}, {0x7F, 0x9F}});
  const NodeId sign = builder_.Character(signs.Complement(), Spelling::kPlain, kReturnNode);
  return builder_.Repeat(sign, 1, kMostKey, /*plain=*/false, next);
}

NodeId AnswerEmitter::Value(const CallParameter& parameter, const Exit& close, NodeId next) {
  if (parameter.is_text && parameter.choices.empty()) {
    ProseMark mark{.bytes = close.mark, .token = close.token, .target = next};
    if (close.token) mark.bytes = tokens_ == nullptr ? "" : tokens_->MarkOf(close.mark);
    return EmitProse({mark}, {}, &builder_);
  }
  // The line feeds that a family's templates write around a value are no part of it.
  const NodeId end = Mark(close, next);
  const auto trimmed = [this](NodeId node) {
    return format_.family().trims ? builder_.Split({node, builder_.Byte('\n', node)}) : node;
  };
  const NodeId behind = trimmed(end);
  return trimmed(parameter.is_text ? builder_.OneOf(parameter.choices, behind)
                                   : builder_.Call(parameter.value, behind));
}

}  // namespace annulus

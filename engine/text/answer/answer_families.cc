// How each family of models writes reasoning and calls. Sources: the chat templates that the
// models' publishers ship, and for Gemma 2 and 3 the prompt that Google's documentation recommends.

#include "engine/text/answer/answer_format.h"

namespace annulus {
namespace {

using Part = AnswerPart;
constexpr uint8_t kLine = AnswerExit::kLine;
constexpr uint8_t kStart = AnswerExit::kStart;
constexpr uint8_t kKeep = AnswerExit::kKeep;
constexpr uint8_t kEnds = AnswerExit::kEnds;
constexpr uint8_t kCall = AnswerExit::kCall;

const AnswerExit kThink = {"<think>", "reasoning", kStart};
const AnswerState kReasoning = {"reasoning", Part::kReasoning, "", {{"</think>", "text"}}};

// [{"name": .., "arguments": {..}}, ..], then `behind`.
std::vector<AnswerState> List(absl::string_view close, absl::string_view behind) {
  return {{"list", Part::kSpace, "", {{"[", "first"}, {"{", "item", kKeep}}},
          {"first", Part::kSpace, "", {{"]", behind}, {"{", "item", kKeep}}},
          {"item", Part::kCall, "next"},
          {"next", Part::kSpace, behind, {{",", "item"}, {close, behind}}}};
}

std::vector<AnswerState> Join(std::vector<AnswerState> states, std::vector<AnswerState> more) {
  states.insert(states.end(), more.begin(), more.end());
  return states;
}

// <tool_call>\n{"name": .., "arguments": {..}}\n</tool_call>
AnswerFamily Hermes(absl::string_view name, std::vector<absl::string_view> needles) {
  return {.name = name,
          .states = {{"text", Part::kText, "", {kThink, {"<tool_call>", "call", kLine | kCall}}},
                     kReasoning,
                     {"call", Part::kCall, "close"},
                     {"close", Part::kSpace, "text", {{"</tool_call>", "text"}}}},
          .needles = std::move(needles)};
}

// {"name": .., "parameters": {..}}; .., all of it behind <|python_tag|> or not
AnswerFamily Llama() {
  return {.name = "llama3",
          .states = {{"text",
                      Part::kText,
                      "",
                      {kThink,
                       {"<|python_tag|>", "call", kLine | kCall},
                       {"{", "bare", kStart | kKeep | kCall}}},
                     kReasoning,
                     {"call", Part::kCall, "after"},
                     {"bare", Part::kBareCall, "after"},
                     {"after", Part::kSpace, "text", {{";", "more"}, {"{", "call", kKeep}}},
                     {"more", Part::kSpace, "text", {{"{", "call", kKeep}}}},
          .needles = {"<|start_header_id|>", "\"parameters\": "},
          .call_arguments = "parameters"};
}

// [TOOL_CALLS][{"name": .., "arguments": {..}, "id": ..}], or
// [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{..}, or the same without an id, each several times
AnswerFamily Mistral() {
  const AnswerExit open = {"[TOOL_CALLS]", "open", kLine | kCall};
  return {
      .name = "mistral",
      .states = Join({{"text", Part::kText, "", {{"[THINK]", "reasoning", kStart}, open}},
                      {"reasoning", Part::kReasoning, "", {{"[/THINK]", "text"}}},
                      {"open", Part::kSpace, "name", {{"[", "list", kKeep}, {"{", "item", kKeep}}},
                      {"name",
                       Part::kName,
                       "",
                       {{"[CALL_ID]", "id"}, {"[ARGS]", "args"}, {"{", "args", kKeep}}},
                      {"id", Part::kId, "", {{"[ARGS]", "args"}}},
                      {"args", Part::kArguments, "again"},
                      {"again", Part::kSpace, "text", {{"[TOOL_CALLS]", "open"}}}},
                     List("]", "text")),
      .needles = {"[TOOL_CALLS]"}};
}

// function<sep>NAME\n```json\n{..}\n``` (R1, V3) or NAME<sep>{..} (V3.1) between the marks of a
// call
AnswerFamily DeepSeek() {
  constexpr absl::string_view kBegin = "<｜tool▁call▁begin｜>";
  constexpr absl::string_view kSectionBegin = "<｜tool▁calls▁begin｜>";
  return {.name = "deepseek",
          .states =
              {{"text",
                Part::kText,
                "",
                {kThink, {kSectionBegin, "calls", kLine | kCall}, {kBegin, "type", kLine | kCall}}},
               kReasoning,
               {"calls", Part::kSpace, "", {{kBegin, "type"}, {"<｜tool▁calls▁end｜>", "text"}}},
               {"type", Part::kName, "", {{"<｜tool▁sep｜>", "name"}}},
               {"name", Part::kName, "", {{"{", "args", kKeep}, {"\n", "fence"}}},
               {"fence", Part::kSpace, "", {{"```json", "fenced"}}},
               {"fenced", Part::kArguments, "unfence"},
               {"unfence", Part::kSpace, "", {{"```", "close"}}},
               {"args", Part::kArguments, "close"},
               {"close", Part::kSpace, "", {{"<｜tool▁call▁end｜>", "calls"}}}},
          .needles = {kSectionBegin},
          .text_arguments = true,
          .kind_word = "function"};
}

// <|start|>assistant<|channel|>analysis<|message|>..<|end|>, and
// <|start|>assistant to=functions.NAME<|channel|>commentary json<|message|>{..}<|call|>
AnswerFamily Harmony() {
  const std::vector<AnswerExit> ends = {{"<|end|>", "between"},
                                        {"<|return|>", "between"},
                                        {"<|call|>", "between"},
                                        {"<|start|>", "header"},
                                        {"<|channel|>", "header"}};
  return {.name = "harmony",
          .states = {{"header",
                      Part::kHeader,
                      "",
                      {{"<|message|>", "route"},
                       {"<|channel|>", "header"},
                       {"<|constrain|>", "header"},
                       {"<|start|>", "header"}}},
                     {"reasoning", Part::kReasoning, "", ends},
                     {"text", Part::kText, "", ends},
                     {"arguments", Part::kArguments, "called"},
                     {"called", Part::kSpace, "text", ends},
                     {"between",
                      Part::kSpace,
                      "text",
                      {{"<|start|>", "header"}, {"<|channel|>", "header"}}}},
          .needles = {"<|channel|>", "<|message|>"},
          .start = "header",
          .headers = {"<|channel|>analysis<|message|>",
                      "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
                      " to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>",
                      "<|channel|>commentary<|message|>", "<|channel|>final<|message|>"},
          .routes = {{"to=", "arguments"}, {"analysis", "reasoning"}, {"", "text"}}};
}

// <|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{..}<|tool_call_end|> in a section
AnswerFamily Kimi() {
  constexpr absl::string_view kBegin = "<|tool_call_begin|>";
  constexpr absl::string_view kSectionBegin = "<|tool_calls_section_begin|>";
  return {
      .name = "kimi",
      .states =
          {{"text",
            Part::kText,
            "",
            {kThink, {kSectionBegin, "calls", kLine | kCall}, {kBegin, "name", kLine | kCall}}},
           {"reasoning",
            Part::kReasoning,
            "",
            {{"</think>", "text"}, {kSectionBegin, "calls", kLine | kCall}}},
           {"calls", Part::kSpace, "", {{kBegin, "name"}, {"<|tool_calls_section_end|>", "text"}}},
           {"name", Part::kName, "", {{"<|tool_call_argument_begin|>", "args"}}},
           {"args", Part::kArguments, "close"},
           {"close", Part::kSpace, "", {{"<|tool_call_end|>", "calls"}}}},
      .needles = {kSectionBegin},
      .id_names = true};
}

// <|tool_call|>[{"name": .., "arguments": {..}}]; <think>..</think><response>..</response>
AnswerFamily Granite() {
  const AnswerExit open = {"<|tool_call|>", "list", kLine | kCall};
  return {
      .name = "granite",
      .states = Join({{"text", Part::kText, "", {kThink, {"<response>", "response", kStart}, open}},
                      kReasoning,
                      {"response", Part::kText, "", {{"</response>", "text"}, open}}},
                     List("]", "text")),
      .needles = {"<|start_of_role|>", "<|tool_call|>"}};
}

// <|START_ACTION|>[{"tool_call_id": "0", "tool_name": .., "parameters": {..}}]<|END_ACTION|>
AnswerFamily Command() {
  const std::vector<AnswerExit> begins = {{"<|START_THINKING|>", "reasoning", kStart},
                                          {"<|START_RESPONSE|>", "response", kLine},
                                          {"<|START_ACTION|>", "list", kLine | kCall}};
  return {.name = "command",
          .states = Join({{"text", Part::kText, "", begins},
                          {"reasoning", Part::kReasoning, "", {{"<|END_THINKING|>", "text"}}},
                          {"response", Part::kText, "", {{"<|END_RESPONSE|>", "text"}}},
                          {"close", Part::kSpace, "text", {{"<|END_ACTION|>", "text"}}}},
                         List("]", "close")),
          .needles = {"<|START_ACTION|>"},
          .call_id = "tool_call_id",
          .call_name = "tool_name",
          .call_arguments = "parameters"};
}

// {"name": .., "parameters": {..}}, in a fence or not; Gemma has no marks of its own
AnswerFamily Gemma() {
  return {.name = "gemma",
          .states = {{"text",
                      Part::kText,
                      "",
                      {{"```tool_code", "fenced", kLine | kCall},
                       {"```tool_call", "fenced", kLine | kCall},
                       {"```json", "json", kStart | kCall},
                       {"{", "bare", kStart | kKeep | kCall}}},
                     {"fenced", Part::kCall, "unfence"},
                     {"json", Part::kBareCall, "unfence"},
                     {"unfence", Part::kSpace, "text", {{"```", "text"}}},
                     {"bare", Part::kBareCall, "after"},
                     {"after", Part::kSpace, "text", {{"{", "bare", kKeep}}}},
          .needles = {"<start_of_turn>"},
          .call_arguments = "parameters"};
}

// <|tool_call>call:NAME{KEY:<|"|>TEXT<|"|>,KEY:1}<tool_call|>; <|channel>thought\n..<channel|>
AnswerFamily Gemma4() {
  return {.name = "gemma4",
          .states = {{"text",
                      Part::kText,
                      "",
                      {{"<|channel>", "channel", kStart},
                       {"<channel|>", "text", kLine},  // models write one too many
                       {"<|tool_call>", "call", kLine | kCall}}},
                     {"channel", Part::kSpace, "reasoning", {{"thought", "reasoning"}}},
                     {"reasoning", Part::kReasoning, "", {{"<channel|>", "text"}}},
                     {"call", Part::kSpace, "", {{"call:", "name"}}},
                     {"name", Part::kName, "", {{"{", "args", kKeep}}},
                     {"args", Part::kMarked, "close", {{"<|\"|>", "args"}}},
                     {"close", Part::kSpace, "text", {{"<tool_call|>", "text"}}}},
          .needles = {"<|tool_call>", "<|turn>"}};
}

// <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
AnswerFamily QwenCoder() {
  return {.name = "qwen3_coder",
          .states = {{"text",
                      Part::kText,
                      "",
                      {kThink,
                       {"<tool_call>", "open", kLine | kCall},
                       {"<function=", "name", kLine | kCall}}},
                     kReasoning,
                     {"open", Part::kSpace, "", {{"<function=", "name"}}},
                     {"name", Part::kName, "", {{">", "pairs"}}},
                     {"pairs",
                      Part::kSpace,
                      "",
                      {{"<parameter=", "key"}, {"</function>", "close", kEnds}}},
                     {"key", Part::kKey, "", {{">", "value"}}},
                     {"value", Part::kValue, "", {{"</parameter>", "pairs"}}},
                     {"close", Part::kSpace, "text", {{"</tool_call>", "text"}}}},
          .needles = {"<function=", "<parameter="},
          .tagged = true,
          .trims = true};
}

// <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>
AnswerFamily Glm() {
  const AnswerExit close = {"</tool_call>", "text", kEnds};
  return {.name = "glm",
          .states = {{"text", Part::kText, "", {kThink, {"<tool_call>", "name", kLine | kCall}}},
                     kReasoning,
                     {"name", Part::kName, "", {{"\n", "pairs"}, {"<arg_key>", "key"}, close}},
                     {"pairs", Part::kSpace, "", {{"<arg_key>", "key"}, close}},
                     {"key", Part::kKey, "", {{"</arg_key>", "middle"}}},
                     {"middle", Part::kSpace, "", {{"<arg_value>", "value"}}},
                     {"value", Part::kValue, "", {{"</arg_value>", "pairs"}}}},
          .needles = {"<arg_key>"},
          .tagged = true};
}

}  // namespace

const std::vector<AnswerFamily>& AnswerFamilies() {
  static const auto* const kFamilies = new std::vector<AnswerFamily>{
      Harmony(),
      Kimi(),
      DeepSeek(),
      Mistral(),
      Command(),
      QwenCoder(),
      Glm(),
      Granite(),
      Hermes("smollm3", {"SmolLM"}),
      Hermes("hermes", {"<tool_call>"}),
      Llama(),
      Gemma(),
      Gemma4(),
  };
  return *kFamilies;
}

}  // namespace annulus

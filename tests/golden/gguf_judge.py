#!/usr/bin/env python3
"""Lets llama.cpp judge how GGUF files are read.

    tests/golden/gguf_judge.py BUILD --llama-server PROGRAM [--file FILE.gguf]... [NAME...]

Asks PROGRAM and BUILD/annulusd the same prompts of token ids about the same small files of random weights,
greedily, in float32: those that the tests make of the goldens (BUILD/tests/gguf_files), those of
tests/golden/gguf and any FILE. Prints a table: how many of the answers are equal, or the first difference
with the gap between the two best logits there by each program: where it is tiny, it is a tie. NAME: only
files whose names contain one of these. A file that llama.cpp refuses is said, with its reason. Exits with 1
if an answer differs and it is no tie. Not part of the tests: it needs an installed llama.cpp.
"""

import argparse
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench" / "peers"))
import programs  # noqa: E402  (the folder is known only now)

TOKENS = 32
LENGTHS = (3, 40, 150)
TIE = 2e-3  # of log probabilities
CONTEXT = 256
GPT2_END = 11  # what llama.cpp takes for the end of text where a file of this kind names none


def post(program, body):
    connection = http.client.HTTPConnection("127.0.0.1", program.port, timeout=300)
    try:
        connection.request("POST", program.path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise program.fail(f"refuses a prompt: {text[:300]!r}")
    return json.loads(text)


def gap(values):
    best = sorted(values, reverse=True)[:2]
    return best[0] - best[1] if len(best) == 2 else float("inf")


class Annulus(programs.Annulus):
    def command(self):
        return [*super().command(), "--admin-listen", "off", "--weights-dtype", "f32",
                "--served-model-name", "any"]

    def answer(self, tokens, vocabulary):
        """[(id, gap of the two best)]"""
        body = {"model": "any", "prompt": tokens, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True,
                "logprobs": 2, "annulus": {"speculation": "off"}}
        said = post(self, body)["choices"][0]["logprobs"]
        return [(vocabulary.id_of(text), gap(best.values())) for text, best in zip(said["tokens"], said["top_logprobs"])]


class LlamaCpp(programs.LlamaCpp):
    def command(self):
        return [self.program, "-m", self.model, "--host", "127.0.0.1", "--port", str(self.port), "-t", "1", "-tb",
                "1", "-c", str(CONTEXT), "-np", "1", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-warmup",
                "--fit", "off"]

    def answer(self, tokens, _):
        body = {"prompt": tokens, "n_predict": TOKENS, "temperature": 0, "cache_prompt": False, "n_probs": 2,
                "return_tokens": True}
        return [(one["id"], gap(best["logprob"] for best in one["top_logprobs"]))
                for one in post(self, body)["completion_probabilities"]]


class Vocabulary:
    """Of a file: its tokens are invented, and each has a text of its own."""

    def __init__(self, path):
        import gguf
        reader = gguf.GGUFReader(path)
        field = reader.get_field("tokenizer.ggml.tokens")
        self.ids = {text: number for number, text in enumerate(field.contents())}
        ends = reader.get_field("tokenizer.ggml.eos_token_id")
        self.end = GPT2_END if ends is None else ends.contents()

    def id_of(self, text):
        return self.ids.get(text, -1)


def reason(log):
    """What llama.cpp said of a file that it does not load."""
    for pattern in (r"unknown model architecture: '[^']*'", r"error loading model[^:]*: (?!error)(.*)",
                    r"GGML_ASSERT\(.*", r"error: (.*)"):
        found = re.findall(pattern, log)
        if found:
            return found[-1].strip()[:160]
    return log.strip().splitlines()[-1][:160] if log.strip() else "it ended"


def ask(program, prompts, vocabulary):
    """The answers, and why there are none."""
    try:
        program.start()
        return [program.answer(prompt, vocabulary) for prompt in prompts], None
    except RuntimeError as error:
        return None, reason(str(error))
    finally:
        program.stop()


def compare(ours, theirs, end):
    """(equal answers, [what differs first]). llama.cpp stops at the end of text."""
    equal, differences = 0, []
    for length, own, other in zip(LENGTHS, ours, theirs):
        if len(other) < TOKENS and (not other or other[-1][0] != end):
            raise RuntimeError(f"llama.cpp gave {len(other)} tokens of {TOKENS}")
        at = next((i for i, (a, b) in enumerate(zip(own, other)) if a[0] != b[0]), None)
        if at is None:
            equal += 1
            continue
        differences.append((length, at, own[at], other[at]))
    return equal, differences


def judge(path, options):
    vocabulary = Vocabulary(path)
    draw = random.Random(path.name)
    prompts = [[draw.randrange(12, len(vocabulary.ids)) for _ in range(length)] for length in LENGTHS]
    ours, why = ask(Annulus(f"{options.build}/annulusd", str(path), options), prompts, vocabulary)
    theirs, their_why = ask(LlamaCpp(options.llama_server, str(path), options), prompts, vocabulary)
    if ours is None:
        return f"annulusd refuses: {why}", their_why is None
    if theirs is None:
        return f"llama.cpp refuses: {their_why}", False
    equal, differences = compare(ours, theirs, vocabulary.end)
    if not differences:
        return f"{equal} of {len(LENGTHS)}", False
    shown = "; ".join(f"prompt of {length}: token {at} is {own[0]}, by llama.cpp {other[0]}, gaps {own[1]:.4f} and "
                      f"{other[1]:.4f}" for length, at, own, other in differences)
    tie = all(min(own[1], other[1]) < TIE for _, _, own, other in differences)
    return f"{equal} of {len(LENGTHS)}; {shown}{' (a tie)' if tie else ''}", not tie


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--file", action="append", default=[], type=pathlib.Path)
    options = parser.parse_args()
    options.threads, options.context, options.annulus_option = 1, CONTEXT, []
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([f"{options.build}/tests/gguf_files", folder], stdout=subprocess.PIPE, text=True,
                              check=True)
        files = [pathlib.Path(folder) / name for name in done.stdout.split()]
        files += sorted((HERE / "gguf").glob("gemma*.gguf")) + options.file
        wrong = 0
        print("| file | equal answers |\n|---|---|")
        for path in files:
            if options.names and not any(name in path.name for name in options.names):
                continue
            verdict, bad = judge(path, options)
            wrong += bad
            print(f"| {path.stem} | {verdict} |", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()

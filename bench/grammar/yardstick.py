#!/usr/bin/env python3
"""Compares masks and their times with those of the Python package llguidance.

  yardstick.py PROGRAM DATA [--tokenizers qwen3,llama3,...] [--walks N] [--seed S] [--rounds R]
    PROGRAM: build/grammar-lab; DATA: the folder of the test data

For each constraint below, walks through both: texts that fit, by the tokenizer's own tokens, and N
random walks over the tokens that llguidance allows. Prints for each tokenizer the times of both
(one core, least of the rounds), and every difference of masks with what explains it and an example.
Exit status 1 if nothing explains a difference. Needs llguidance and numpy.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")

import numpy  # noqa: E402, reads the variables above
from llguidance import LLMatcher, LLTokenizer  # noqa: E402

# The same white space as ours (json_emitter.h).
LIKE_OURS = {"whitespace_flexible": True,
             "whitespace_pattern": "(?: |\\r?\\n[ \\t]{0,64})"}

BATCH = 8  # walks of each constraint whose masks are in memory

PERSON = {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer"},
    "email": {"type": "string", "maxLength": 60}, "tags": {"type": "array", "items": {"type": "string"}},
    "address": {"type": "object", "properties": {
        "street": {"type": "string"}, "city": {"type": "string"},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
        "required": ["street", "city"], "additionalProperties": False}},
    "required": ["name", "age", "email"], "additionalProperties": False}
TREE = {"$defs": {"node": {"type": "object", "properties": {
    "value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["value", "children"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
SHAPES = {"anyOf": [
    {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
     "required": ["kind", "radius"], "additionalProperties": False},
    {"type": "object", "properties": {"kind": {"const": "box"}, "width": {"type": "number"},
                                      "height": {"type": "number"}},
     "required": ["kind", "width", "height"], "additionalProperties": False}]}
EVENT = {"type": "object", "properties": {
    "id": {"type": "string", "format": "uuid"}, "on": {"type": "string", "format": "date"},
    "level": {"enum": ["debug", "info", "warning", "error"]}, "done": {"type": "boolean"},
    "score": {"type": "integer", "minimum": 0, "maximum": 100},
    "notes": {"type": ["string", "null"]}},
    "required": ["id", "on", "level", "done", "score", "notes"], "additionalProperties": False}
OPEN = {"type": "object", "properties": {"title": {"type": "string"}, "body": {"type": "string"}},
        "required": ["title"]}

CONSTRAINTS = {
    "person": ("json_schema", PERSON, ['{"name": "Ada Lovelace", "age": 36, "email": "ada@example.com", '
               '"tags": ["mathematics", "Analytical Engine", "notes, by A.A.L."], "address": '
               '{"street": "12 St James\\u0027s Square", "city": "London", "zip": "12345"}}']),
    "tree": ("json_schema", TREE, ['{"value": 1.5, "children": [{"value": -2e3, "children": []}, '
             '{"value": 17, "children": [{"value": 0, "children": []}]}]}']),
    "shapes": ("json_schema", SHAPES, ['{"kind": "box", "width": 3, "height": 4.25}',
                                       '{"kind":"circle","radius":0.5}']),
    "event": ("json_schema", EVENT, ['{"id": "2eb8aa08-aa98-11ea-b4aa-73b441d16380", "on": '
              '"2024-02-29", "level": "warning", "done": false, "score": 97, "notes": '
              '"The second run failed: the disk was full.\\nIt is repeated tonight."}']),
    "open": ("json_schema", OPEN, ['{"title": "On the stack", "body": "Once more", "page": 12, '
             '"others": [{"a": [true, null]}]}']),
    "any": ("json_object", {"type": "object"}, ['{\n  "a": 1,\n  "list": [\n    "x",\n    2\n  ]\n}']),
    "regex": ("regex", "(?:[A-Z][a-z]+ ){1,4}[0-9]{4}(?:-[0-9]{2}){2}: [^\\n]{0,80}\\n",
              ["Meeting Notes 2024-05-17: discussed the plan, and some more of it\n"]),
}


def grammar(kind, schema):
    if kind == "regex":
        return LLMatcher.grammar_from_regex(schema)
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=LIKE_OURS)


def masks(matcher, tokens, words):
    """llguidance's rows along the tokens, and the microseconds of each."""
    rows, times = [], []
    for token in list(tokens) + [None]:
        start = time.perf_counter()
        row = matcher.compute_bitmask()
        times.append((time.perf_counter() - start) * 1e6)
        whole = numpy.zeros(words * 4, numpy.uint8)
        whole[:min(len(row), len(whole))] = numpy.frombuffer(row, numpy.uint8)[:len(whole)]
        rows.append(whole)
        if token is None or not matcher.consume_token(token) or matcher.is_stopped():
            break
    return rows, times


def bits(row):
    return numpy.flatnonzero(numpy.unpackbits(row, bitorder="little"))


def random_walk(matcher, random, end, most=60):
    tokens = []
    while len(tokens) < most:
        allowed = bits(numpy.frombuffer(matcher.compute_bitmask(), numpy.uint8))
        allowed = allowed[allowed != end]
        if not len(allowed):
            break
        tokens.append(int(random.choice(allowed)))
        if not matcher.consume_token(tokens[-1]) or matcher.is_stopped():
            break
    return tokens


def shown(values):
    points = numpy.percentile(values, [50, 90, 99, 100])
    return "median %.1f, p90 %.1f, p99 %.1f, worst %.1f us" % tuple(points)


OPEN_ESCAPE = re.compile(rb"(?<!\\)(?:\\\\)*\\$")  # its second character comes next
ESCAPE = re.compile(rb"(?:^|[^\\])(?:\\\\)*\\(?:u[0-9A-Fa-f]{0,7})?$")


def explain_ours(before, token, forced):
    """Why a token is allowed here alone."""
    if forced:
        return "where the text is forced, llguidance allows its own tokenization alone"
    if b"\x7f" in token:
        return "llguidance refuses U+007F in strings"
    if b"\\/" in token or ESCAPE.search(before) and token.startswith(b"/"):
        return "llguidance refuses the escape \\/"
    if b"\\u" in token or ESCAPE.search(before):
        return "llguidance refuses \\u but for control characters, in capitals"
    return None


def explain_theirs(before, token):
    """Why a token is allowed by llguidance alone."""
    if re.search(rb"[ \t\r\n]$|[ \t\r\n][,:]", before[-1:] + token):
        return "here no white space comes before a comma, a colon or the end"
    if re.search(rb'"on":\s*"[0-9-]*$', before):
        return "here dates have years from 0001 and days that their month has"
    if b"\\u" in token or (token[:1] == b"u" and OPEN_ESCAPE.search(before)):
        return "here a name that may still become that of a property has no \\u"
    return None


def compare(tokenizer, walk, rows, ours, differences, name):
    """Adds the differing tokens, by what explains them."""
    for step, (theirs, mine) in enumerate(zip(rows, ours)):
        if numpy.array_equal(theirs, mine):
            continue
        forced = len(bits(theirs)) == 1
        before = tokenizer.decode_bytes(walk[:step])
        for here, which in ((False, theirs & ~mine), (True, mine & ~theirs)):
            for i in bits(which):
                token = tokenizer.decode_bytes([int(i)])
                reason = explain_ours(before, token, forced) if here else explain_theirs(before, token)
                key = reason or f"UNEXPLAINED: {name}, only {'here' if here else 'llguidance'}"
                found = differences.setdefault(key, [0, step, collections.Counter()])
                found[0] += 1
                found[2][token] += 1


class Walk:
    """A walk under a constraint, and what llguidance says of it."""

    def __init__(self, tokenizer, constraint, tokens, rounds):
        kind, schema, _ = CONSTRAINTS[constraint]
        self.constraint, self.tokens = constraint, tokens
        self.words = (max(tokenizer.vocab_size, tokenizer.eos_token + 1) + 31) // 32
        self.line = json.dumps({"kind": kind, "text": schema if kind == "regex" else json.dumps(schema),
                                "tokens": tokens})
        for i in range(rounds):
            start = time.perf_counter()
            matcher = LLMatcher(tokenizer, grammar(kind, schema))
            took = (time.perf_counter() - start) * 1e6
            self.rows, times = masks(matcher, tokens, self.words)
            self.compiled = min(took, self.compiled) if i else took
            self.times = [min(pair) for pair in zip(self.times, times)] if i else times


class Totals:
    def __init__(self):
        self.walks, self.steps, self.refused, self.stopped = 0, 0, 0, 0
        self.here, self.theirs, self.compiled_here, self.compiled, self.slow = [], [], [], [], []
        self.differences = {}

    def print(self):
        print(f"  {self.steps} masks along {self.walks} walks; {self.stopped} end early here, before a token that only "
              "llguidance allows")
        print(f"  here:       {shown(self.here)}; compile {shown(self.compiled_here)}")
        print(f"  llguidance: {shown(self.theirs)}; compile {shown(self.compiled)}")
        for took, constraint, after in sorted(self.slow, reverse=True)[:3]:
            print(f"  slowest here: {took:.0f} us, {constraint}, after {after}")
        for reason, (count, step, tokens) in sorted(self.differences.items()):
            print(f"  {reason}: {count} bits, first at step {step}, e.g. "
                  f"{[token for token, _ in tokens.most_common(6)]}", flush=True)


def compare_all(program, path, tokenizer, walks, rounds, totals):
    """Runs the walks here too, and adds what both say."""
    with tempfile.NamedTemporaryFile() as file:
        done = subprocess.run([program, path, str(tokenizer.eos_token), str(rounds), file.name],
                              input="".join(walk.line + "\n" for walk in walks), text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
        data = numpy.fromfile(file.name, numpy.uint8)
    at = 0
    for line, walk in zip(done.stdout.splitlines(), walks, strict=True):
        result = json.loads(line)
        totals.walks += 1
        if "error" in result:
            print(f"  {walk.constraint}: {result['error']}")
            totals.refused += 1
            continue
        count = result["stopped"] + 1
        ours = data[at:at + count * walk.words * 4].reshape(count, -1)
        at += count * walk.words * 4
        compare(tokenizer, walk.tokens, walk.rows, ours, totals.differences, walk.constraint)
        if count < len(walk.rows):
            totals.stopped += 1
        totals.steps += min(count, len(walk.rows))
        totals.here += result["mask_us"][:len(walk.rows)]
        totals.slow += [(took, walk.constraint, tokenizer.decode_bytes(walk.tokens[max(0, i - 4):i]))
                        for i, took in enumerate(result["mask_us"])]
        totals.slow = sorted(totals.slow, reverse=True)[:3]
        totals.theirs += walk.times
        totals.compiled_here.append(result["compile_us"])
        totals.compiled.append(walk.compiled)


def run(name, arguments, random):
    """Whether all masks are equal but for what is explained."""
    path = arguments.data / "tokenizers" / name
    tokenizer = LLTokenizer((path / "tokenizer.json").read_text())
    totals, left = Totals(), arguments.walks
    while not totals.walks or left > 0:
        walks = []
        for constraint, (kind, schema, texts) in CONSTRAINTS.items():
            every = [] if totals.walks else [tokenizer.tokenize_str(text) for text in texts]
            every += [random_walk(LLMatcher(tokenizer, grammar(kind, schema)), random, tokenizer.eos_token)
                      for _ in range(min(left, BATCH))]
            walks += [Walk(tokenizer, constraint, tokens, arguments.rounds) for tokens in every]
        left -= BATCH
        compare_all(arguments.program, path, tokenizer, walks, arguments.rounds, totals)
    print(f"{name}: {tokenizer.vocab_size} ids")
    totals.print()
    return not totals.refused and not any(reason.startswith("UNEXPLAINED") for reason in totals.differences)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--tokenizers", default="qwen3")
    parser.add_argument("--walks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    good = [run(name, arguments, numpy.random.default_rng(arguments.seed))
            for name in arguments.tokenizers.split(",")]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times encoding beside the Python package `tokenizers`, and how time grows with the text. Run by hand.

  measure.py PROGRAM DATA [NAME...]   PROGRAM: build/annulus-tokenize; NAME: of DATA/tokenizers

First, for each tokenizer, 10,000,000 bytes of English, in turns on one thread each: seconds of
processor time without loading, and whether the ids are the same. Then 10 and 20 MB of one letter, of
spaces, of CJK and of combining marks on a stack of 256 KiB: time(2n) / time(n).
"""

import os
import pathlib
import resource
import subprocess
import sys
import time

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")

from make_goldens import load  # noqa: E402, reads the variables above

BYTES = 10_000_000
ROUNDS = 3
KINDS = {"one letter": "a", "spaces": " ", "CJK": "中", "combining marks": "\u0301"}


def encode_here(program, folder, text):
    """The ids, and seconds of processor time, loading included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [program, folder], input=text.encode(), stdout=subprocess.PIPE, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (256 << 10, 256 << 10)))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, used


def seconds_here(program, folder, text):
    loading = min(encode_here(program, folder, "")[1] for _ in range(ROUNDS))
    return min(encode_here(program, folder, text)[1] for _ in range(ROUNDS)) - loading


def seconds_package(tokenizer, text):
    before = time.thread_time()
    tokenizer.encode(text)
    return time.thread_time() - before


def main():
    program, data, *names = sys.argv[1:]
    data = pathlib.Path(data)
    english = "".join((data / "texts" / f"{name}.txt").read_text(encoding="utf-8")
                      for name in ("war_and_peace", "moby_dick_utf8"))
    text = (english * 3).encode()[:BYTES].decode("utf-8", "ignore")
    names = names or sorted(folder.parent.name for folder in data.glob("tokenizers/*/tokenizer.json"))
    for name in names:
        folder = data / "tokenizers" / name
        package = load(folder / "tokenizer.json")
        ids = [int(i) for i in encode_here(program, folder, text)[0].split()]
        same = "the same ids" if ids == package.encode(text).ids else "OTHER IDS"
        here, there = seconds_here(program, folder, text), seconds_package(package, text)
        print(f"{name}: {here:.2f} s, package {there:.2f} s, ratio {there / here:.1f}, {same}", flush=True)
    for name in names:
        folder = data / "tokenizers" / name
        for kind, unit in KINDS.items():
            run = unit * (BYTES // len(unit.encode()))
            once, twice = (seconds_here(program, folder, run * n) for n in (1, 2))
            print(f"{name}, {kind}: {once:.2f} s and {twice:.2f} s, {twice / once:.2f}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Times encoding beside the Python packages, and how time grows with the text. Run by hand.

  measure.py [--growth|--speed] PROGRAM DATA [NAME...]
    PROGRAM: build/annulus-tokenize; NAME: a folder of DATA/tokenizers, for its tokenizer.json, or
    NAME.json and NAME.model of small/, or NAME.model for the tokenizer.model of such a folder

First, for each tokenizer, 10,000,000 bytes of English, in turns on one thread each, beside the
package `tokenizers`, for .model beside `sentencepiece`: seconds of processor time without loading,
and whether the ids are the same. Then 10 and 20 MB of one letter, of spaces, of CJK and of combining
marks on a stack of 256 KiB: time(2n) / time(n).
"""

import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")

from make_goldens import HERE, load  # noqa: E402, reads the variables above

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


def find(name, data):
    """The file of a tokenizer."""
    if (HERE / "small" / name).is_file():
        return HERE / "small" / name
    kind = "model" if name.endswith(".model") else "json"
    return data / "tokenizers" / name.removesuffix(".model") / f"tokenizer.{kind}"


def encoder(path):
    """What encodes with the package: a function from text to ids."""
    if path.suffix == ".json":
        tokenizer = load(path)
        return lambda text: tokenizer.encode(text).ids
    import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_file=str(path), add_bos=True).encode


def speed(program, name, path, folder, text):
    encode = encoder(path)
    before = time.thread_time()
    theirs = encode(text)
    there = time.thread_time() - before
    here = seconds_here(program, folder, text)
    ids = [int(i) for i in encode_here(program, folder, text)[0].split()]
    same = "the same ids" if ids == theirs else f"OTHER IDS, {len(ids)} and {len(theirs)}"
    print(f"{name}: {here:.2f} s, package {there:.2f} s, ratio {there / here:.1f}, {same}", flush=True)


def growth(program, name, folder):
    for kind, unit in KINDS.items():
        run = unit * (BYTES // len(unit.encode()))
        once, twice = (seconds_here(program, folder, run * n) for n in (1, 2))
        print(f"{name}, {kind}: {once:.2f} s and {twice:.2f} s, {twice / once:.2f}", flush=True)


def main():
    arguments = sys.argv[1:]
    only = arguments.pop(0) if arguments[0].startswith("--") else ""
    program, data, *names = arguments
    data = pathlib.Path(data)
    english = "".join((data / "texts" / f"{name}.txt").read_text(encoding="utf-8")
                      for name in ("war_and_peace", "moby_dick_utf8"))
    text = (english * 3).encode()[:BYTES].decode("utf-8", "ignore")
    names = names or sorted(folder.parent.name for folder in data.glob("tokenizers/*/tokenizer.json"))
    with tempfile.TemporaryDirectory() as place:
        folders = {}
        for name in names:
            folders[name] = pathlib.Path(place, name)
            folders[name].mkdir()
            path = find(name, data)
            shutil.copy(path, folders[name] / f"tokenizer{path.suffix}")
            config = path.parent / "tokenizer_config.json"
            if path.suffix == ".json" and config.is_file():
                shutil.copy(config, folders[name])
        if only != "--growth":
            for name in names:
                speed(program, name, find(name, data), folders[name], text)
        if only != "--speed":
            for name in names:
                growth(program, name, folders[name])


if __name__ == "__main__":
    main()

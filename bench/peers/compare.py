#!/usr/bin/env python3
"""Times Annulus beside llama.cpp and OpenVINO GenAI on one GGUF file: see bench/peers.sh.

Prints a table in Markdown; with --rows adds every figure to a file of JSON lines. The programs run
one after the other in each round; a cell is the median of the rounds. A program that fails at
something gets a dash there, and the error goes to stderr.
"""

import argparse
import collections
import json
import random
import statistics
import sys
import threading
import time

import programs

LEAST_TOKEN, MOST_TOKEN = 1000, 30000  # of prompts: ordinary tokens of every vocabulary

# A row of the table. annulus-bench chart draws those with a phase over `length`: the tokens of a
# prompt, or the depth of an answer.
Row = collections.namedtuple("Row", "name phase length", defaults=("", 0))


class Asker:
    """Asks one program, with prompts that share nothing but what they are meant to."""

    def __init__(self, program, seed):
        self.program = program
        self.random = random.Random(seed)

    def prompt(self, length):
        return [self.random.randint(LEAST_TOKEN, MOST_TOKEN) for _ in range(length)]

    def times(self, tokens, count):
        """Seconds from now to each token of the answer."""
        begun = time.monotonic()
        times = [time.monotonic() - begun for _ in self.program.stream(tokens, count)]
        # A server may send two tokens' text in one event, and count them as one.
        if len(times) < 0.9 * count:
            raise RuntimeError(f"{self.program.name} answered {len(times)} of {count} tokens")
        return times

    def together(self, asked):
        """times() of several, all at once: asked is a list of (tokens, count)."""
        results = [None] * len(asked)

        def ask(at):
            try:
                results[at] = self.times(*asked[at])
            except Exception as error:  # raised again below
                results[at] = error

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


# Each returns {Row: figure} of one round.

def read(length, first):
    return {Row(f"prompt of {length:,} tokens, tokens/s", "prefill", length): length / first}


def prompts(asker, length):
    return read(length, asker.times(asker.prompt(length), 1)[0])


def answer(asker, depth, count=64):
    times = asker.times(asker.prompt(max(depth, 16)), count)
    return {**(read(depth, times[0]) if depth else {}),
            Row(f"answer at depth {depth:,}, tokens/s", "decode", depth):
            (count - 1) / (times[-1] - times[0])}


def streams(asker, number, depth=512, count=64):
    results = asker.together([(asker.prompt(depth), count) for _ in range(number)])
    firsts, ends = [times[0] for times in results], [times[-1] for times in results]
    # Steady: while all of them are answered.
    begin, end = max(firsts), min(ends)
    steady = sum(sum(begin < at <= end for at in times) for times in results)
    name = f"{number} streams after {depth} tokens"
    rows = {Row(f"{name}: all done, s"): max(ends),
            Row(f"{name}: mean first token, s"): statistics.mean(firsts),
            Row(f"{name}: last first token, s"): max(firsts)}
    if end > begin:
        rows[Row(f"{name}: steady, tokens/s")] = steady / (end - begin)
    return rows


def beside(asker, length):
    """A long prompt comes to a stream that runs, and a short request after it."""
    stop = threading.Event()
    arrivals = []

    def run():
        for _ in asker.program.stream(asker.prompt(64), 4000):
            arrivals.append(time.monotonic())
            if stop.is_set():
                return

    stream = threading.Thread(target=run)
    stream.start()
    while len(arrivals) < 8:
        if not stream.is_alive():
            raise RuntimeError(f"{asker.program.name} ended the stream early")
        time.sleep(0.05)
    begun = time.monotonic()
    long = threading.Thread(target=asker.times, args=(asker.prompt(length), 1))
    long.start()
    time.sleep(1)
    short = asker.times(asker.prompt(32), 1)[0]
    long.join()
    ended = time.monotonic()
    stop.set()
    stream.join()
    during = [begun, *(at for at in arrivals if begun < at <= ended), ended]
    return {Row(f"a stream beside a prompt of {length:,}: longest gap, s"):
            max(b - a for a, b in zip(during, during[1:])),
            Row(f"a short request beside a prompt of {length:,}: first token, s"): short}


def again(asker, length):
    document = asker.prompt(length)
    asker.times(document + asker.prompt(32), 1)
    return {Row(f"second question over {length:,} tokens: first token, s"):
            asker.times(document + asker.prompt(32), 1)[0]}


PARTS = {"prompts": lambda asker, options: [prompts(asker, n) for n in options.prompts],
         "answers": lambda asker, options: [answer(asker, n) for n in options.depths],
         "streams": lambda asker, options: [streams(asker, n) for n in options.streams],
         "beside": lambda asker, options: [beside(asker, options.long)],
         "again": lambda asker, options: [again(asker, options.long)]}


def numbers(text):
    return [int(number) for number in text.split(",")]


def options_of(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", required=True, metavar="FILE.gguf")
    parser.add_argument("--annulusd", default="build/annulusd")
    parser.add_argument("--llama-server", metavar="PROGRAM")
    parser.add_argument("--openvino", metavar="PYTHON", help="that has openvino-genai and numpy")
    parser.add_argument("--openvino-model", metavar="FILE.gguf",
                        help="the same weights in F16, since OpenVINO reads no BF16; default: --model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--prompts", type=numbers, default=[512, 2048, 8192])
    parser.add_argument("--depths", type=numbers, default=[0, 8192])
    parser.add_argument("--streams", type=numbers, default=[8, 32])
    parser.add_argument("--long", type=int, default=8192, help="tokens of the parts beside and again")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", metavar="FILE.jsonl")
    parser.add_argument("--annulus-option", action="append", default=[], metavar="OPTION")
    parser.add_argument("--llama-option", action="append", default=[], metavar="OPTION")
    options = parser.parse_args(argv)
    wrong = [part for part in options.parts if part not in PARTS]
    if wrong:
        parser.error(f"there is no part {wrong[0]}; there are {', '.join(PARTS)}")
    options.most_streams = max(options.streams + [4])
    # Of the parts that are asked for: some models are made for little more than these.
    longest = {"prompts": max(options.prompts), "answers": max(options.depths) + 64,
               "streams": 640, "beside": max(options.long, 4064), "again": options.long + 32}
    options.longest = max(longest[part] for part in options.parts) + 64
    options.context = options.longest + 4096 + 640 * options.most_streams
    options.cache_gib = 4
    return options


def round_of(program, part, options, seed):
    """The rows of one round, or none if the program cannot do it."""
    rows = {}
    try:
        for result in PARTS[part](Asker(program, seed), options):
            rows.update(result)
    except Exception as error:
        print(f"{program.name}, {part}: {error}", file=sys.stderr)
    return rows


def measure(all_programs, options, found):
    """Adds to found: {Row: {program: [figures]}}."""

    def add(program, rows):
        for row, figure in rows.items():
            found.setdefault(row, {}).setdefault(program.name, []).append(figure)

    for program in all_programs:
        begun = time.monotonic()
        program.start()
        Asker(program, 0).times([LEAST_TOKEN], 1)
        add(program, {Row("start to the first token, s"): time.monotonic() - begun})
    for part in options.parts:
        for at in range(options.rounds):
            for program in all_programs:
                print(f"{part}, round {at + 1} of {options.rounds}: {program.name}",
                      file=sys.stderr)
                seed = options.seed * 1000 + at
                add(program, round_of(program, part, options, f"{part} {seed}"))
    for program in all_programs:
        add(program, {Row("most memory, GiB"): program.peak_bytes() / 2**30})


def text_of(figure):
    return f"{figure:.3g}" if figure < 100 else f"{figure:.0f}"


def print_table(found, all_programs):
    print("| |", " | ".join(program.name for program in all_programs), "|")
    print("|---|" + "--:|" * len(all_programs))
    for row, figures in found.items():
        cells = [text_of(statistics.median(figures[program.name]))
                 if figures.get(program.name) else "-" for program in all_programs]
        print("|", " | ".join([row.name, *cells]), "|")


def write_rows(found, options):
    with open(options.rows, "a", encoding="utf-8") as file:
        for row, figures in found.items():
            for name, all_figures in figures.items():
                line = {"model": options.model.rsplit("/", 1)[-1], "row": row.name,
                        "program": name, "figures": all_figures}
                if row.phase:
                    line.update(phase=row.phase, length=row.length,
                                tokens_per_second=statistics.median(all_figures))
                file.write(json.dumps(line) + "\n")


def main():
    options = options_of(sys.argv[1:])
    all_programs = [programs.Annulus(options.annulusd, options.model, options)]
    if options.llama_server:
        all_programs.append(programs.LlamaCpp(options.llama_server, options.model, options))
    if options.openvino:
        all_programs.append(programs.OpenVino(
            options.openvino, options.openvino_model or options.model, options))
    found = {}
    try:
        measure(all_programs, options, found)
    finally:  # also of a run that is interrupted
        for program in all_programs:
            program.stop()
        print_table(found, all_programs)
        if options.rows:
            write_rows(found, options)


if __name__ == "__main__":
    main()

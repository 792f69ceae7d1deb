#!/usr/bin/env python3
"""How often the passages that an answer names are the right ones: evidence_truth.py --help

Two kinds of questions. Needles: sentences planted at 50 depths of a long text, at several lengths.
Questions: those of questions.tsv, about the documents beside it and deploy/ferry-report.txt. For
each, `annulus ask --evidence --json` asks a running daemon; a passage is right if it has the middle
of the words that hold the fact. Beside it stand
- a choice by chance: the same number of passages, as long as those that were named, anywhere in the
  document. Its standard deviation is that of independent draws (Poisson's binomial);
- a search by words: the document in pieces of whole sentences, about as long as the passages, ranked
  for the question by BM25 (Robertson and Zaragoza 2009, k1 = 1.2, b = 0.75).
Prints a table in Markdown. Whether an answer is right is counted too, but a right passage counts
whatever the answer says.
"""

import argparse
import collections
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FERRY = os.path.join(HERE, "..", "..", "deploy", "ferry-report.txt")
DEPTHS = 50
NEEDLES_IN_ONE = 5  # of a document, so that its text is read once for so many questions
MOST_TOKENS = 40
PIECE_BYTES = 300  # about 64 tokens of English

TOWNS = ["Arvik", "Belton", "Corfe", "Dunmore", "Elsted", "Farley", "Grimsby", "Holt", "Ivel", "Kelso"]
THINGS = ["the lighthouse", "the old mill", "the town hall", "the salt store", "the observatory"]

Case = collections.namedtuple("Case", "question words place")  # place: byte of the document


def needles(text, length, generator):
    """Documents of `length` bytes with their cases: [(text, [Case])]."""
    documents = []
    depths = [(at + 0.5) / DEPTHS for at in range(DEPTHS)]
    for first in range(DEPTHS // NEEDLES_IN_ONE):
        begin = generator.randrange(len(text) - length)
        begin = text.index(b"\n\n", begin) if b"\n\n" in text[begin:-length] else begin
        hay = text[begin:begin + length]
        # Every tenth depth, so that each document has needles from its beginning to its end.
        mine = depths[first::DEPTHS // NEEDLES_IN_ONE]
        parts, cases, at = [], [], 0
        for index, depth in enumerate(mine):
            where = hay.find(b". ", int(depth * length))
            where = len(hay) if where < 0 else where + 2
            parts.append(hay[at:where])
            at = where
            thing, town = THINGS[index], TOWNS[first]
            code = str(generator.randrange(1000, 10000))
            needle = f"The key of {thing} of {town} has the number {code}. ".encode()
            before = sum(map(len, parts))
            cases.append(Case(f"Which number has the key of {thing} of {town}?", code,
                              before + needle.index(code.encode()) + 2))
            parts.append(needle)
        parts.append(hay[at:])
        documents.append((b"".join(parts), cases))
    return documents


def questions():
    documents = {}
    with open(os.path.join(HERE, "questions.tsv"), encoding="utf-8") as lines:
        for line in lines:
            name, question, words, passage = line.rstrip("\n").split("\t")
            path = FERRY if name == os.path.basename(FERRY) else os.path.join(HERE, "texts", name)
            if path not in documents:
                with open(path, "rb") as file:
                    documents[path] = (file.read(), [])
            text, cases = documents[path]
            passage = passage.encode()
            if text.count(passage) != 1:
                sys.exit(f"{name} has {passage!r} {text.count(passage)} times, not once")
            cases.append(Case(question, words, text.index(passage) + len(passage) // 2))
    return list(documents.values())


def ask(options, text, cases):
    """[(answer, [(begin, end)])], the passages of an answer best first."""
    with tempfile.TemporaryDirectory() as folder:
        document, asked = os.path.join(folder, "document.txt"), os.path.join(folder, "questions")
        with open(document, "wb") as file:
            file.write(text)
        with open(asked, "w", encoding="utf-8") as file:
            file.writelines(case.question + "\n" for case in cases)
        lines = subprocess.run(
            [options.annulus, "ask", document, "--questions", asked, "--evidence", "--json",
             "--server", options.server, "--temperature", "0", "--max-tokens", str(MOST_TOKENS)],
            check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    answers = [None] * len(cases)
    for line in lines:
        reply = json.loads(line)
        passages = [passage for sentence in reply.get("evidence", {}).get("sentences", [])
                    for passage in sentence["passages"]]
        passages.sort(key=lambda passage: -passage["score"])
        answers[int(reply.get("index", 0))] = (
            reply["text"], [(int(each.get("byte_begin", 0)), int(each["byte_end"])) for each in passages])
    return answers


def words_of(text):
    return re.findall(r"[a-z0-9]+", text.lower())


def search(text, question):
    """Pieces of the document, [(begin, end)], best first by BM25."""
    pieces, begin = [], 0
    for match in re.finditer(rb"[.!?]\s+|\n\n+|$", text):
        if match.end() - begin >= PIECE_BYTES or match.end() == len(text):
            if match.end() > begin:
                pieces.append((begin, match.end()))
            begin = match.end()
    counts = [collections.Counter(words_of(text[a:b].decode(errors="replace"))) for a, b in pieces]
    mean = sum(sum(count.values()) for count in counts) / len(counts)

    def score(count):
        total = 0.0
        for word in set(words_of(question)):
            having = sum(word in other for other in counts)
            idf = math.log(1 + (len(counts) - having + 0.5) / (having + 0.5))
            norm = 1.2 * (0.25 + 0.75 * sum(count.values()) / mean)
            total += idf * count[word] * 2.2 / (count[word] + norm)
        return total

    order = sorted(range(len(pieces)), key=lambda at: -score(counts[at]))
    return [pieces[at] for at in order]


def rank(passages, place):
    """0 for the first that has the place; None: none has."""
    return next((at for at, (begin, end) in enumerate(passages) if begin <= place < end), None)


class Tally:
    def __init__(self):
        self.asked = self.right = self.named = 0
        self.first = self.three = self.absent = 0
        self.words_first = self.words_three = 0
        self.chance_first, self.chance_three = [], []

    def add(self, text, case, answer, passages):
        self.asked += 1
        self.right += case.words.lower() in answer.lower()
        self.named += len(passages)
        found, by_words = rank(passages, case.place), rank(search(text, case.question), case.place)
        self.first += found == 0
        self.three += found is not None and found < 3
        self.absent += found is None
        self.words_first += by_words == 0
        self.words_three += by_words is not None and by_words < 3
        misses = [1 - (end - begin) / len(text) for begin, end in passages[:3]]
        self.chance_first.append(1 - misses[0] if misses else 0)
        self.chance_three.append(1 - math.prod(misses))

    def row(self, name):
        mean = sum(self.chance_first)
        deviation = math.sqrt(sum(p * (1 - p) for p in self.chance_first))
        beyond = (self.first - mean) / deviation if deviation else 0
        share = lambda count: f"{100 * count / self.asked:.0f}%"
        return (f"| {name} | {self.asked} | {share(self.right)} | {self.named / self.asked:.1f} | "
                f"{share(self.first)} | {share(self.three)} | {share(self.absent)} | {share(mean)}, "
                f"{share(sum(self.chance_three))} | {beyond:.0f} | {share(self.words_first)}, "
                f"{share(self.words_three)} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="address of a running annulusd")
    parser.add_argument("--annulus", default="build/annulus")
    parser.add_argument("--haystack", metavar="FILE", help="a long text to plant needles in")
    parser.add_argument("--lengths", default="4000,12000,28000", help="of the needles' documents, in bytes")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sets = [(f"{len(questions())} documents", questions())]
    if options.haystack:
        with open(options.haystack, "rb") as file:
            haystack = file.read()
        for length in map(int, options.lengths.split(",")):
            sets.append((f"needles in {length:,} bytes",
                         needles(haystack, length, random.Random(options.seed))))
    print("| questions | asked | answers right | passages named | first | in three | absent | "
          "by chance: first, in three | deviations above | by words: first, in three |")
    print("|---|" + "--:|" * 9)
    for name, documents in sets:
        tally = Tally()
        for text, cases in documents:
            for case, (answer, passages) in zip(cases, ask(options, text, cases)):
                tally.add(text, case, answer, passages)
        print(tally.row(name), flush=True)


if __name__ == "__main__":
    main()

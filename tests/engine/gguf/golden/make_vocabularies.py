#!/usr/bin/env python3
"""make_vocabularies.py: writes vocabularies/ beside itself, which gguf_vocabularies_test.cc reads.

NAME.gguf is the vocabulary of a family of models as llama.cpp's converter writes it (../vocabularies.py),
without tensors; NAME.json is the tokenizer.json of the same model; NAME.txt has the ids that the Python
package `tokenizers` makes by it of strings.json: of each string one FNV-1a hash, 32 bits, over the ids (little
endian, 32 bits each). Needs tokenizers 0.23.3.
"""

import json
import pathlib
import random
import re
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import tokenizer_ids_test  # noqa: E402
import vocabularies  # noqa: E402
from make_goldens import SPECIAL, fnv  # noqa: E402

SEED = 49
SIZE, LETTERS = 420, 90  # small files
BYTE_LEVEL = {"llama-bpe": "llama3", "qwen2": "qwen2", "gpt-4o": "gpt_oss", "tekken": "mistral_nemo"}


def main():
    from tokenizers import Tokenizer
    rng = random.Random(SEED)
    special = re.compile("|".join(map(re.escape, SPECIAL)))
    training = vocabularies.code_and_tables(SEED + 1, 1000)
    training += [special.sub("", tokenizer_ids_test.random_text(rng)) for _ in range(300)]
    strings = vocabularies.code_and_tables(SEED, 160)
    strings += [tokenizer_ids_test.random_text(rng) for _ in range(120)]
    strings.append("a" + " " * 10 + "b")
    folder = HERE / "vocabularies"
    folder.mkdir(exist_ok=True)
    (folder / "strings.json").write_text(json.dumps(strings, ensure_ascii=True, indent=0) + "\n")
    kinds = [(BYTE_LEVEL[name], values, made)
             for name, values, made in tokenizer_ids_test.byte_level(training, SIZE) if name in BYTE_LEVEL]
    for name, values, made in kinds + list(tokenizer_ids_test.families(training, SIZE, LETTERS)):
        written = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.gguf").write_bytes(tokenizer_ids_test.gguf(values))
        (folder / f"{name}.json").write_text(written + "\n", encoding="utf-8")
        encoded = Tokenizer.from_str(written).encode_batch(strings, add_special_tokens=False)
        hashes = ["%08x" % fnv(b"".join(i.to_bytes(4, "little") for i in one.ids)) for one in encoded]
        (folder / f"{name}.txt").write_text("\n".join(hashes) + "\n")
        print(name, len(values["tokenizer.ggml.tokens"]))


if __name__ == "__main__":
    main()

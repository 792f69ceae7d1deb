#!/usr/bin/env python3
"""tokenizer_ids_test.py BUILD: of every kind of GGUF vocabulary, the ids of 2,000 random texts and of 2,000
texts of code, tables and pages are those of the Python package `tokenizers`.

The kinds are those of tokenizer.ggml.pre, `llama` and `t5` of tokenizer.ggml.model, and each family of
models that has a tokenizer.model (vocabularies.py). The package gets a tokenizer.json as the publishers of
such models have it, BUILD/tests/gguf_ids that and a GGUF file as converters make it, all with one small
vocabulary that is trained here. Texts and vocabularies come from SEED.

Skipped (77) if the package cannot be had from PyPI. It is kept in a folder of BUILD/python.
"""

import collections
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile
import unicodedata

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "text" / "golden"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import vocabularies  # noqa: E402
from make_goldens import EMOJI, RUNS, SPACES, SPECIAL, WORDS  # noqa: E402
from vocabularies import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED  # noqa: E402

PACKAGE = "tokenizers==0.23.3"
SEED = 28
TEXTS = 2000
SIZE = 2000  # of a vocabulary, about
LETTERS = 300  # of the vocabularies with scores
SHOWN = 3  # differences of a kind

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+CONTRACTION|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*CONTRACTION"
         r"|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("CONTRACTION", "").replace("NUMBER", r"\p{N}")
GPT4O = O200K.replace("CONTRACTION", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?").replace("NUMBER", r"\p{N}{1,3}")


SEED_OSS = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}{1}").replace(r"[^\s\p{L}\p{N}]+[\r\n]*",
                                                            r"[^\s\p{L}\p{N}\r\n]+")
NUMBERS_AND_HAN = (r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+")
MARKS_WITH_WORDS = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
                    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
                    r"|\s*[\r\n]+|\s+(?!\S)|\s+")


@dataclasses.dataclass
class Pre:
    """What a publisher's tokenizer.json says of a byte-level vocabulary."""
    pattern: str = ""  # of a Split; "": the one that ByteLevel brings, GPT-2's
    first: tuple = ()  # patterns of Splits before
    digits: bool = False  # Digits first, each by itself
    composes: bool = False  # the normalizer NFC
    ignore_merges: bool = False


# By tokenizer.ggml.pre, each from the tokenizer.json of the models named.
KINDS = {
    "gpt-2": Pre(),  # openai-community/gpt2
    "olmo": Pre(composes=True),  # allenai/OLMo-7B-0724-hf
    "phi-2": Pre(),  # microsoft/phi-2
    "smollm": Pre(digits=True),  # HuggingFaceTB/SmolLM2-135M
    "starcoder": Pre(digits=True),  # bigcode/starcoder2-3b
    "refact": Pre(digits=True),  # smallcloudai/Refact-1_6B-fim
    "command-r": Pre(digits=True, composes=True),  # CohereForAI/c4ai-command-r-v01
    "llama-bpe": Pre(LLAMA3, ignore_merges=True),  # meta-llama/Meta-Llama-3-8B
    "llama3": Pre(LLAMA3, ignore_merges=True),  # the same, by other converters
    "llama-v3": Pre(LLAMA3, ignore_merges=True),
    "dbrx": Pre(LLAMA3),  # databricks/dbrx-instruct
    "qwen2": Pre(QWEN2, composes=True),  # Qwen/Qwen2-7B
    "deepseek-r1-qwen": Pre(QWEN2, composes=True),  # deepseek-ai/DeepSeek-R1-Distill-Qwen-7B
    "megrez": Pre(QWEN2, composes=True),  # Infinigence/Megrez-3B-Instruct
    "tekken": Pre(TEKKEN, ignore_merges=True),  # mistralai/Mistral-Nemo-Instruct-2407
    "gpt-4o": Pre(GPT4O),  # openai/gpt-oss-20b
    "llama4": Pre(GPT4O),  # meta-llama/Llama-4-Scout-17B-16E
    # By llama.cpp; not tried on the publishers' files.
    "glm4": Pre(LLAMA3),  # zai-org/GLM-4-9B-0414
    "chatglm-bpe": Pre(LLAMA3),  # zai-org/glm-4-9b-chat-hf
    "minimax-m2": Pre(GPT4O),  # MiniMaxAI/MiniMax-M2
    "exaone4": Pre(),  # LGAI-EXAONE/EXAONE-4.0-1.2B
    "seed-coder": Pre(SEED_OSS),  # ByteDance-Seed/Seed-OSS-36B-Instruct
    "hunyuan": Pre(QWEN2),  # tencent/Hunyuan-A13B-Instruct
    "hunyuan-dense": Pre(MARKS_WITH_WORDS, first=NUMBERS_AND_HAN),  # tencent/Hunyuan-7B-Instruct
}


def characters():
    """By general category, the characters of Unicode 3.2: every later table has them."""
    found = {}
    for code_point in range(0x110000):
        category = unicodedata.ucd_3_2_0.category(chr(code_point))
        if category not in ("Cn", "Cs"):
            found.setdefault(category, []).append(chr(code_point))
    return list(found.values())


CHARACTERS = characters()


def random_text(rng):
    def any_character():
        return rng.choice(rng.choice(CHARACTERS))

    def some(most, one):
        return "".join(one() for _ in range(rng.randint(1, most)))

    def contraction():
        return (rng.choice(["don", "WE", "I", "Ǆe", "he1", "中"]) + rng.choice("'’") +
                rng.choice(["s", "S", "ſ", "t", "re", "RE", "vE", "m", "ll", "LL", "d", "x"]) +
                rng.choice(["", "s", " "]))

    kinds = [
        lambda: some(4, lambda: rng.choice(WORDS) + rng.choice(["", " ", " ", "  "])),
        lambda: some(6, any_character),
        lambda: some(9, lambda: rng.choice("0123456789٣½²Ⅷ")),
        lambda: some(4, lambda: rng.choice(SPACES)),
        contraction,
        lambda: rng.choice(EMOJI),
        lambda: some(5, lambda: rng.choice("!/\\.,\n\r-_'\"")),
        lambda: some(3, lambda: chr(rng.choice([rng.randrange(32), rng.randrange(127, 160)]))),
        lambda: rng.choice(RUNS) * rng.randint(2, 40),
        lambda: rng.choice(SPECIAL),
    ]
    return some(8, lambda: rng.choice(kinds)())


def trained(texts, alphabet, pre_tokenizer=None, size=SIZE):
    """The tokens, by id, and the merges of a BPE vocabulary. Texts are not split before, so merges bridge
    any place where a pattern may split."""
    from tokenizers import Tokenizer, models, trainers
    tokenizer = Tokenizer(models.BPE())
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, limit_alphabet=len(alphabet), show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [tuple(merge) for merge in model["merges"]]


def tokenizer_json(model, tokens, types, normalizer, pre_tokenizer):
    added = [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": type != USER_DEFINED}
             for i, type in enumerate(types) if type in (UNKNOWN, CONTROL, USER_DEFINED)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None,
            "decoder": {"type": "Fuse"}, "model": model}


def bpe(tokens, merges, unknown=None, ignore_merges=False):
    return {"type": "BPE", "dropout": None, "unk_token": unknown, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": unknown is not None, "byte_fallback": unknown is not None,
            "ignore_merges": ignore_merges, "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": merges}


def metadata(kind, tokens, types, **more):
    values = {"model": kind, "tokens": tokens, "token_type": types, **more}
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


def byte_level(texts, size=SIZE):
    """Of each kind of tokenizer.ggml.pre: its name, metadata, tokenizer.json."""
    from tokenizers import pre_tokenizers
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokens, merges = trained(texts, pre_tokenizers.ByteLevel.alphabet(), whole, size)
    # No merges lead to these: where ignore_merges is set, a piece becomes one all the same.
    for word in WORDS:
        token = whole.pre_tokenize_str(" " + word)[0][0]
        if token not in tokens:
            tokens.append(token)
    added = ["<think>"] + [" " * count for count in range(2, 25)]  # the runs in the manner of GPT-NeoX
    types = [NORMAL] * len(tokens) + [CONTROL] + [USER_DEFINED] * len(added)
    tokens += ["<|endoftext|>"] + added
    for name, pre in KINDS.items():
        steps = [{"type": "Digits", "individual_digits": True}] if pre.digits else []
        steps += [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
                   "invert": False} for pattern in (*pre.first, pre.pattern) if pattern]
        steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                      "use_regex": not pre.pattern})
        yield (name,
               metadata("gpt2", tokens, types, pre=name, merges=[" ".join(merge) for merge in merges]),
               tokenizer_json(bpe(tokens, merges, ignore_merges=pre.ignore_merges), tokens, types,
                              {"type": "NFC"} if pre.composes else None,
                              {"type": "Sequence", "pretokenizers": steps}))


def of_one_pair(merges, alphabet):
    """Those merges whose piece no other pair of pieces makes. Of such pieces the scores decide as the ranks
    of merges do; otherwise two pairs have one score, but two ranks."""
    pieces, kept = set(alphabet), []
    for left, right in merges:
        piece = left + right
        if piece in pieces or left not in pieces or right not in pieces:
            continue
        pieces.add(piece)
        pairs = sum(piece[:i] in pieces and piece[i:] in pieces for i in range(1, len(piece)))
        makes_another = any(
            len(other) > len(piece) and
            (other.startswith(piece) and other[len(piece):] in pieces or
             other.endswith(piece) and other[:-len(piece)] in pieces) for other in pieces)
        if pairs == 1 and not makes_another:
            kept.append((left, right))
        else:
            pieces.remove(piece)
    return kept


def trained_pieces(texts, size=SIZE, letters=LETTERS):
    """The merges of pieces and the single characters that sentencepiece would have of these texts."""
    texts = ["▁" + text.replace(" ", "▁") for text in texts]
    counts = collections.Counter("".join(texts))
    del counts["\0"]  # sentencepiece has no piece with a zero byte
    alphabet = sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters]
    return trained(texts, alphabet, size=size)[1], alphabet


def families(texts, size=SIZE, letters=LETTERS):
    """The same of each family that has a tokenizer.model."""
    merges, alphabet = trained_pieces(texts, size, letters)
    for directory in vocabularies.directories(of_one_pair(merges, alphabet), alphabet):
        yield directory.name, vocabularies.converted(directory), vocabularies.tokenizer_json(directory)
    yield ("gemma4", *vocabularies.gemma4(merges, alphabet))


def scored(texts):
    """The same of the kinds that have scores, which sentencepiece trains."""
    merges, alphabet = trained_pieces(texts)

    # In the manner of Llama 2: scores are ranks, and there is a piece for every byte.
    kept = of_one_pair(merges, alphabet)
    special = ["<unk>", "<s>", "</s>"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [left + right for left, right in kept] + alphabet
    tokens = special + bytes_ + pieces
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
    scores = [0.0] * (len(special) + 256) + [-float(rank) for rank in range(1, len(pieces) + 1)]
    yield ("llama", metadata("llama", tokens, types, scores=scores, unknown_token_id=0),
           tokenizer_json(bpe(tokens, kept, unknown="<unk>"), tokens, types,
                          {"type": "Sequence", "normalizers": [
                              {"type": "Prepend", "prepend": "▁"},
                              {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}, None))

    # In the manner of T5, but for its character map: scores are logarithms, here of few bits, so that
    # float32 and float64 have the same sums.
    special = ["<pad>", "</s>", "<unk>"]
    pieces = alphabet + list(dict.fromkeys(left + right for left, right in merges))
    rng = random.Random(SEED)
    added = ["<extra_id_0>", "```", "    "]
    tokens = special + pieces + added
    types = [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * len(pieces) + [CONTROL, USER_DEFINED, USER_DEFINED]
    scores = [0.0] * len(special) + [-rng.randrange(2 << 8, 14 << 8) / 256 for _ in pieces] + [-1000.0] * len(added)
    model = {"type": "Unigram", "unk_id": 2, "vocab": list(zip(special + pieces, scores)), "byte_fallback": False}
    yield ("t5", metadata("t5", tokens, types, scores=scores, unknown_token_id=2),
           tokenizer_json(model, tokens, types,
                          {"type": "Sequence", "normalizers": [
                              {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""},
                              {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
                          {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                           "split": False}))


def gguf(values):
    """A GGUF file of version 3 without tensors."""
    def text(value):
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def stored(value):
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        if isinstance(value, bool):
            return struct.pack("<IB", 7, value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        element, one = {str: (8, text), int: (5, lambda n: struct.pack("<i", n)),
                        float: (6, lambda n: struct.pack("<f", n))}[type(value[0])]
        return struct.pack("<IIQ", 9, element, len(value)) + b"".join(map(one, value))

    return (b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) +
            b"".join(text(key) + stored(value) for key, value in values.items()))


def ask(program, data, texts, suffix=".gguf"):
    with tempfile.NamedTemporaryFile(suffix=suffix) as file:
        file.write(data)
        file.flush()
        return subprocess.run([program, file.name], input=json.dumps(texts), capture_output=True, text=True)


def differences(name, program, values, tokenizer, texts):
    """How many of the texts get other ids by the GGUF file or by the tokenizer.json; prints some."""
    from tokenizers import Tokenizer
    written = json.dumps(tokenizer)
    theirs = Tokenizer.from_str(written).encode_batch(texts, add_special_tokens=False)
    count = 0
    for suffix, data in ((".gguf", gguf(values)), (".json", written.encode())):
        answer = ask(program, data, texts, suffix)
        if answer.returncode != 0:
            print(f"{name}{suffix}: {answer.stderr}", end="")
            count += len(texts)
            continue
        different = [(text, ids, one.ids) for text, ids, one in zip(texts, json.loads(answer.stdout), theirs)
                     if ids != one.ids]
        print(f"{name}{suffix}: {len(texts) - len(different)} of {len(texts)} texts agree")
        for text, ids, expected in different[:SHOWN]:
            print(f"  {text!r}\n    here    {ids}\n    package {expected}")
        count += len(different)
    return count


def install(folder):
    if not (folder / "tokenizers").is_dir():
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--timeout", "15",
                               "--retries", "2", "--disable-pip-version-check", "--root-user-action=ignore",
                               "--target", folder, PACKAGE])
        if done.returncode != 0:
            print(f"tokenizer_ids_test: {PACKAGE} cannot be had from PyPI: nothing was compared", file=sys.stderr)
            sys.exit(77)
    sys.path.insert(0, str(folder))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1])
    program = build / "tests" / "gguf_ids"
    install(build / "python" / PACKAGE)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # it warns of programs started beside its threads
    rng = random.Random(SEED)
    # Without special tokens, which must not become tokens a second time.
    special = re.compile("|".join(map(re.escape, SPECIAL)))
    training = [special.sub("", random_text(rng)) for _ in range(2 * TEXTS)]
    texts = [random_text(rng) for _ in range(TEXTS)] + vocabularies.code_and_tables(SEED, TEXTS)
    training += vocabularies.code_and_tables(SEED + 1, TEXTS)

    failed = 0
    refusal = ask(program, gguf(metadata("gpt2", ["a"], [NORMAL], pre="none")), []).stderr
    served = re.search(r"supported: ([^.]*)\. ", refusal)
    if not served or set(served[1].split(", ")) != set(KINDS):
        print(f"KINDS has {', '.join(KINDS)}; gguf_ids says: {refusal}")
        failed += 1
    for name, values, tokenizer in itertools.chain(byte_level(training), families(training)):
        failed += differences(name, program, values, tokenizer, texts) > 0
    for name, values, tokenizer in scored(training):
        # Where white space is collapsed, sentencepiece takes a "▁" that was typed for some.
        asked = [text.replace("▁", "") for text in texts] if name == "t5" else texts
        failed += differences(name, program, values, tokenizer, asked) > 0
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

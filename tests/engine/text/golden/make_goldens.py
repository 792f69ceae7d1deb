#!/usr/bin/env python3
"""Makes the tokenizer goldens of this folder with the Python package `tokenizers`.

  make_goldens.py corpus          corpus.json: the strings
  make_goldens.py small DATA      small/*.json: small tokenizers trained on DATA/texts
  make_goldens.py derived         small/*.json that differ from those in one part only
  make_goldens.py expected DATA   expected/*.txt: what the package makes of the strings, with the
                                  small tokenizers and with those of DATA/tokenizers

See README.md. Needs Python 3.11 (whose Unicode is 14.0), tokenizers 0.23, sentencepiece, protobuf.
"""

import json
import os
import pathlib
import random
import sys
import tempfile
import unicodedata

HERE = pathlib.Path(__file__).parent
REAL = ["gpt2", "llama2", "llama3", "mistral-v3", "qwen3"]

WORDS = ("the of and to in is was he she it's don't WE'RE I'll they've can't ain't 'S 'll Natasha "
         "Prince café naïve Ångström straße İstanbul ΣΊΣΥΦΟΣ Привет мир नमस्ते สวัสดี 中文 日本語 "
         "한국어 العربية עברית x1y2 3.14 1,234,567 0xFF ½ ² Ⅷ ٣٤ fooBar snake_case kebab-case "
         "http://a.b/c?d=e#f user@host.org $100 50% a+b=c {json: [1, 2]} <b>bold</b> // */ \\n "
         "ﬁ ﬀ Ａｂｃ ① ㎏ ㍿ ｶﾞ ｱ ㅏ ₂ … ‘a’ “b” – — ··· ▁ ▁▁a").split()
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇩🇪🇫🇷", "1️⃣", "#️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "❤️‍🔥",
         "👩🏿‍🚀", "☺️", "☺", "🧑‍🤝‍🧑", "🇩", "🏽", "\u200d", "\ufe0f"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", " \n", "\r", "\u00a0", "\u3000", "\u2028",
          "\u200b", "\u0085", "\u1680", "\u180e", "\ufeff"]
SPECIAL = ["<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>", "<unk>",
           "[INST]", "[/INST]", "<|eot_id|>", "<think>", "<|", "|>", "<s", "<0x0A>", "<0xFF>", "<new>",
           "<left>", "<right>", "<word>"]
RUNS = ["a", " ", "中", "\u0301", "1", "!", "\n", "ab", "\u1100\u1161", "😀", "é", "_", "-", "=", "\u0e33",
        "e\u0301\u0323", " a", "\r\n", "z", "ǆ", "\u200d", "中文", "▁"]


def knows(char):
    """Whether the package's tables have the character as Unicode 14 has it: some are older."""
    from tokenizers import normalizers, pre_tokenizers
    around = "a\u0345" + char + "\u0334"  # classes 240 and 1: shows the class of a mark
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        if getattr(normalizers, form)().normalize_str(around) != unicodedata.normalize(form, around):
            return False
    pieces = pre_tokenizers.Punctuation().pre_tokenize_str("a" + char)
    is_punctuation = unicodedata.category(char)[0] == "P" or char in "$+<=>^`|~"
    return (len(pieces) == 2) == is_punctuation


def by_category():
    """The characters of each general category, without surrogates and unassigned ones."""
    result, unknown = {}, 0
    for code_point in range(0x110000):
        char = chr(code_point)
        category = unicodedata.category(char)
        if category in ("Cs", "Cn"):
            continue
        if 0x3400 <= code_point < 0x9FFF or 0x20000 <= code_point or knows(char):
            result.setdefault(category, []).append(char)
        else:
            unknown += 1
    print(unknown, "characters left out")
    return result


def corpus():
    rng = random.Random(20240607)
    categories = by_category()
    pick = lambda: rng.choice(categories[rng.choice(sorted(categories))])
    strings = ["", " ", "a", "\n", "\u0000", "\u007f", "\ufffe", "\U0010ffff", "\ue000"]
    for category in sorted(categories):  # alone, beside themselves, in words, behind spaces
        for _ in range(12):
            c, d = rng.choice(categories[category]), rng.choice(categories[category])
            strings += [c, c + d, f"a{c}b {d}", f" {c}{c}1{d}\n"]
    for _ in range(200):
        strings.append("".join(pick() for _ in range(rng.randint(1, 24))))
    for _ in range(450):
        strings.append("".join(rng.choice(WORDS) + rng.choice([" "] * 8 + SPACES)
                               for _ in range(rng.randint(1, 10))))
    for _ in range(150):
        strings.append("".join(rng.choice(EMOJI + SPACES + ["a", "!"])
                               for _ in range(rng.randint(1, 8))))
    for _ in range(200):
        parts = SPECIAL + SPACES + WORDS
        strings.append("".join(rng.choice(parts) for _ in range(rng.randint(1, 7))))
    for run in RUNS:
        for _ in range(8):
            strings.append(rng.choice(["", "x", " "]) + run * rng.randint(2, 260) +
                           rng.choice(["", "y", "  "]))
    for _ in range(80):  # what a reader makes of broken bytes
        raw = bytes(rng.choice([rng.randrange(256), 0x61, 0xC3, 0xE4, 0x20]) for _ in range(12))
        strings.append(raw.decode("utf-8", "replace"))
    for _ in range(120):
        strings.append("".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randint(3, 40))))
    with open(HERE / "corpus.json", "w", encoding="utf-8") as file:
        lines = [json.dumps(s, ensure_ascii=False) for s in strings]
        file.write("[\n" + ",\n".join(lines) + "\n]\n")
    print(len(strings), "strings")


def training_lines(data):
    rng = random.Random(5)
    text = (data / "texts" / "war_and_peace.txt").read_text(encoding="utf-8")[20_000:420_000]
    lines = [line for line in text.split("\n") if line.strip()]
    for _ in range(3000):
        lines.append(" ".join(rng.choice(WORDS) for _ in range(8)))
    return lines


# What a sentencepiece file shall never cut: among them what its character map would replace.
USER_DEFINED = ["<start_of_turn>", "<|im_start|>", "[INST]", "[/INST]", "<think>", "\n", "\n\n", "▁▁", "▁▁▁",
                "ﬁ", "①", "é", "e\u0301", "中文", "Natasha", "in", "ing", "👨‍👩‍👧‍👦", "0xF", "aaaa"]

RULES = {"ﬁ": "fi", "ﬀ": "ff", "Ａ": "A", "ｂ": "b", "\u3000": " ", "\t": " ", "\n": " ", "\r": " ",
         "\u00a0": " ", "\u200b": "", "①": "1", "㎏": "kg", "㍿": "株式会社", "ｶ": "カ", "ｶﾞ": "ガ",
         "e\u0301": "é", "\ufeff": "", "…": "...", "²": "2", "½": "1⁄2"}


def write_rules(path, rules):
    code_points = lambda s: " ".join(f"{ord(c):X}" for c in s)
    with open(path, "w", encoding="utf-8") as file:
        for source, target in rules.items():
            file.write(f"{code_points(source)}\t{code_points(target)}\n")


def charsmap():
    """A small character map, compiled by sentencepiece's trainer."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model_pb2
    with tempfile.TemporaryDirectory() as folder:
        tsv = os.path.join(folder, "rules.tsv")
        write_rules(tsv, RULES)
        text = os.path.join(folder, "text")
        with open(text, "w", encoding="utf-8") as file:
            file.write("the quick brown fox\n" * 50)
        sentencepiece.SentencePieceTrainer.train(
            input=text, model_prefix=os.path.join(folder, "m"), vocab_size=30,
            normalization_rule_tsv=tsv, hard_vocab_limit=False, minloglevel=2)
        proto = model_pb2.ModelProto()
        proto.ParseFromString(open(os.path.join(folder, "m.model"), "rb").read())
        return proto.normalizer_spec.precompiled_charsmap


def small(data):
    from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                            pre_tokenizers, processors, trainers)
    lines = training_lines(data)
    folder = HERE / "small"
    folder.mkdir(exist_ok=True)
    llama3 = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    bytes_tokens = [f"<0x{b:02X}>" for b in range(256)]

    def save(name, tokenizer, edit=None):
        value = json.loads(tokenizer.to_str())
        if edit:
            edit(value)
        with open(folder / f"{name}.json", "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")

    def add_flagged(tokenizer):
        tokenizer.add_tokens([AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True),
                              AddedToken("<word>", single_word=True, normalized=False),
                              AddedToken("<new>", normalized=False), AddedToken("naïve")])

    # In the manner of GPT-2 and RoBERTa, with every flag of added tokens.
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"],
        show_progress=False))
    add_flagged(t)
    save("byte_level", t)

    # In the manner of Qwen and DeepSeek: NFC, several splits.
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
        pre_tokenizers.Split(Regex("[一-龥ぁ-ゟ]+"), "isolated"),
        pre_tokenizers.Split(llama3, "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=560, initial_alphabet=alphabet, special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False))
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=[
            ("<|im_start|>", t.token_to_id("<|im_start|>")),
            ("<|im_end|>", t.token_to_id("<|im_end|>"))])])
    save("split_sequence", t)

    # In the manner of Llama 2 as newer files write it: Metaspace in front of the first word only.
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.train_from_iterator([w for line in lines[:2500] for w in line.split()], trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", "<s>", "</s>"] + bytes_tokens, limit_alphabet=90,
        show_progress=False))
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", t.token_to_id("<s>"))])
    def undo_bytes(value):  # byte tokens are the model's, not added ones
        value["added_tokens"] = value["added_tokens"][:3]
    save("metaspace_first", t, undo_bytes)

    # In the manner of Gemma: spaces replaced, split at spaces that are no longer there.
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                   decoders.Fuse()])
    save("replaced_spaces", t, undo_bytes)

    # Words, digits and punctuation of normalized text, with an unknown token.
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(),
                                         normalizers.Strip(), normalizers.Replace(Regex("l+"), "l")])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Punctuation("contiguous")])
    t.decoder = decoders.Fuse()
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=500, special_tokens=["<unk>"], limit_alphabet=120, show_progress=False))
    add_flagged(t)
    save("whitespace_words", t)

    # In the manner of XLM-RoBERTa and T5: sentencepiece's character map, words, Unigram.
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(),
        pre_tokenizers.Metaspace(prepend_scheme="always")])
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=700, special_tokens=["<s>", "<unk>", "</s>"], unk_token="<unk>",
        show_progress=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap()),
                                         normalizers.Replace(Regex(" {2,}"), " ")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[
        ("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])
    save("unigram_words", t)

    # Unigram with byte fallback over the whole text.
    value = json.loads(t.to_str())
    value["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Strip", "strip_left": False, "strip_right": True}]}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": False}
    value["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True}, {"type": "Punctuation",
                                                        "behavior": "MergedWithPrevious"}, metaspace]}
    value["decoder"] = {"type": "Sequence", "decoders": [metaspace, {"type": "ByteFallback"},
                                                         {"type": "Fuse"}]}
    model = value["model"]
    model["vocab"] += [[token, -20.0] for token in bytes_tokens]
    model["byte_fallback"] = True
    save("unigram_bytes", Tokenizer.from_str(json.dumps(value)))


def derived():
    """What published files have and the trained ones lack, in copies of them."""
    folder = HERE / "small"

    def copy(source, name, edit):
        value = json.loads((folder / f"{source}.json").read_text(encoding="utf-8"))
        edit(value)
        with open(folder / f"{name}.json", "w", encoding="utf-8") as file:
            json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
            file.write("\n")

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}

    # In the manner of Falcon, whose last two see the byte alphabet; and of RoBERTa.
    def falcon(value):
        value["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Punctuation", "behavior": "Contiguous"}, {**byte_level, "use_regex": True},
            {"type": "Digits", "individual_digits": False},
            {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
             "invert": False}]}
        end = value["model"]["vocab"]["<|endoftext|>"]
        value["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|endoftext|>", end],
                                   "cls": ["<|endoftext|>", end], "trim_offsets": True,
                                   "add_prefix_space": False}
    copy("byte_level", "behind_byte_level", falcon)

    # In the manner of BLOOM: a class inside a class.
    def bloom(value):
        value["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": r" ?[^(\s|[.,!?…。，、।۔،])]+"},
             "behavior": "Isolated", "invert": False}, {**byte_level, "use_regex": False}]}
    copy("byte_level", "nested_class", bloom)

    # In the manner of old files of T5.
    def old(value):
        del value["model"]["type"]
        ids = {token: i for i, (token, _) in enumerate(value["model"]["vocab"])}
        value["post_processor"] = {"type": "BertProcessing", "sep": ["</s>", ids["</s>"]],
                                   "cls": ["<s>", ids["<s>"]]}
    copy("unigram_words", "without_type", old)


def fnv(data, value=0x811C9DC5):
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def load(path):
    from tokenizers import Tokenizer
    value = json.loads(path.read_text(encoding="utf-8"))
    merges = value["model"].get("merges")
    if merges and isinstance(merges[0], str):  # the package takes tokens with spaces as pairs only
        vocab = value["model"]["vocab"]
        def pair(merge):
            parts = merge.split(" ")
            for i in range(1, len(parts)):
                left, right = " ".join(parts[:i]), " ".join(parts[i:])
                if left in vocab and right in vocab and left + right in vocab:
                    return [left, right]
            raise ValueError(merge)
        value["model"]["merges"] = [pair(m) for m in merges]
    return Tokenizer.from_str(json.dumps(value))


def write_hashes(name, hashes):
    folder = HERE / "expected"
    folder.mkdir(exist_ok=True)
    with open(folder / f"{name}.txt", "w") as file:
        for i in range(0, len(hashes), 10):
            file.write(" ".join(hashes[i:i + 10]) + "\n")
    print(name, len(hashes))


def expected(data):
    strings = json.loads((HERE / "corpus.json").read_text(encoding="utf-8"))
    paths = {path.stem: path for path in sorted((HERE / "small").glob("*.json"))}
    for name in REAL:
        paths[name] = data / "tokenizers" / name / "tokenizer.json"
    paths["stories260K"] = data / "models" / "stories260K" / "tokenizer.json"
    for name, path in paths.items():
        tokenizer = load(path)
        hashes = []
        for string in strings:
            ids = tokenizer.encode(string).ids
            text = tokenizer.decode(ids, skip_special_tokens=False)
            raw = b"".join(i.to_bytes(4, "little") for i in ids)
            hashes.append("%08x" % fnv(text.encode("utf-8"), fnv(raw)))
        write_hashes(name, hashes)


def small_models(data):
    """Files of sentencepiece, trained on the same lines: both kinds of model, a character map, with
    and without byte fallback, dummy prefix and extra white space."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model_pb2
    # Replacements that begin with a space and longer sources, too.
    rules = {**RULES, "¨": " \u0308", "a\u0301\u0302": "x", "a\u0301": "á", "ﷺ": "a b  c", "ａ": "a"}
    kinds = {"unigram_map": dict(model_type="unigram", vocab_size=600),
             "unigram_plain": dict(model_type="unigram", vocab_size=800, byte_fallback=True,
                                   normalization_rule_name="identity",
                                   remove_extra_whitespaces=False),
             "unigram_loose": dict(model_type="unigram", vocab_size=500, add_dummy_prefix=False,
                                   remove_extra_whitespaces=False),
             "unigram_user": dict(model_type="unigram", vocab_size=700, byte_fallback=True,
                                  user_defined_symbols=USER_DEFINED),
             "bpe_map": dict(model_type="bpe", vocab_size=700, byte_fallback=True),
             "bpe_user": dict(model_type="bpe", vocab_size=600, user_defined_symbols=USER_DEFINED),
             # In the manner of Gemma.
             "bpe_identity": dict(model_type="bpe", vocab_size=800, byte_fallback=True,
                                  normalization_rule_name="identity", add_dummy_prefix=False,
                                  remove_extra_whitespaces=False,
                                  user_defined_symbols=USER_DEFINED)}
    with tempfile.TemporaryDirectory() as folder:
        tsv, text = os.path.join(folder, "rules.tsv"), os.path.join(folder, "text")
        write_rules(tsv, rules)
        with open(text, "w", encoding="utf-8") as file:
            file.write("\n".join(training_lines(data)))
        for name, options in kinds.items():
            if "normalization_rule_name" not in options:
                options["normalization_rule_tsv"] = tsv
            sentencepiece.SentencePieceTrainer.train(
                input=text, model_prefix=os.path.join(folder, name), character_coverage=0.98,
                num_threads=1, minloglevel=2, **options)
            proto = model_pb2.ModelProto()
            proto.ParseFromString(pathlib.Path(folder, f"{name}.model").read_bytes())
            for place in ("input", "model_prefix"):  # names of the temporary folder
                proto.trainer_spec.ClearField(place)
            proto.normalizer_spec.ClearField("normalization_rule_tsv")
            (HERE / "small" / f"{name}.model").write_bytes(proto.SerializeToString())


def unigram(proto):
    """What divides normalized text as Transformers does: the package `tokenizers`, which sums scores in
    double precision. Pieces that are no text never match: their score is below all others. Those that the
    user defined have the score that the sentencepiece library gives them."""
    from tokenizers import Tokenizer, models
    normal, user_defined = 1, 4
    pieces = [(piece.piece, piece.score if piece.type == normal else
               -0.1 if piece.type == user_defined else -1e9) for piece in proto.pieces]
    return Tokenizer(models.Unigram(pieces, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback))


def expected_model(data):
    """The ids that Transformers gives: control pieces are cut out of the text, as its slow (legacy) Llama
    tokenizer does, each stretch between is normalized by the sentencepiece library and divided by it, or
    by unigram(), <s> stands in front. The text is what the library makes of these ids without the unknown one, but that one space only is
    taken off its start, as the tokenizer.json of such models has it; the library takes all where
    remove_extra_whitespaces is set."""
    import re
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as model_pb2
    strings = json.loads((HERE / "corpus.json").read_text(encoding="utf-8"))
    paths = {path.stem: path for path in sorted((HERE / "small").glob("*.model"))}
    paths["stories260K"] = data / "models" / "stories260K" / "tokenizer.model"
    paths["mistral-v3"] = data / "tokenizers" / "mistral-v3" / "tokenizer.model"
    for name, path in paths.items():
        sp = sentencepiece.SentencePieceProcessor(model_file=str(path))
        proto = model_pb2.ModelProto()
        proto.ParseFromString(path.read_bytes())
        is_unigram = proto.trainer_spec.model_type == 1
        divide = unigram(proto) if is_unigram else None
        proto.normalizer_spec.remove_extra_whitespaces = False
        decoder = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        special = [sp.id_to_piece(i) for i in range(sp.get_piece_size())
                   if sp.is_control(i) or sp.is_unknown(i)]
        special.sort(key=len, reverse=True)
        cut = re.compile("(" + "|".join(re.escape(s) for s in special) + ")")
        hashes = []
        for string in strings:
            ids = [sp.bos_id()]
            for part in cut.split(string):
                if part in special:
                    ids += [sp.piece_to_id(part)]
                elif is_unigram:
                    ids += divide.encode(sp.normalize(part), add_special_tokens=False).ids
                else:
                    ids += sp.encode(part)
            text = decoder.decode([i for i in ids if not sp.is_unknown(i)])
            raw = b"".join(i.to_bytes(4, "little") for i in ids)
            hashes.append("%08x" % fnv(text.encode("utf-8"), fnv(raw)))
        write_hashes(f"{name}.model", hashes)


def main():
    what, *rest = sys.argv[1:]
    data = pathlib.Path(rest[0]) if rest else None
    {"corpus": lambda: corpus(), "small": lambda: (small(data), small_models(data)),
     "derived": derived, "expected": lambda: (expected(data), expected_model(data))}[what]()


if __name__ == "__main__":
    main()

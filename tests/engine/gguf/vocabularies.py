"""Small vocabularies in the manner of published models that have a tokenizer.model of sentencepiece, each
twice: as the GGUF metadata that llama.cpp's converter makes of the model's directory, and as the
tokenizer.json of that directory.

The converter's rules (convert_hf_to_gguf.py, _create_vocab_sentencepiece, Phi3MiniModel.set_vocab and
gguf-py's SpecialVocab), as far as they matter here:
- the type of a piece is NORMAL, UNKNOWN, CONTROL, UNUSED or BYTE: it does not ask for user-defined ones;
- what added_tokens.json has is USER_DEFINED;
- what added_tokens_decoder of tokenizer_config.json has is CONTROL if it is special, or looks so, and else
  USER_DEFINED with spaces for "▁" (Phi-3's converter neither looks nor replaces); the score is -1000;
- ids up to the embedding's size are UNUSED, "[PAD<id>]";
- tokenizer.ggml.unknown_token_id and the like come from tokenizer.json's added tokens by the names in
  tokenizer_config.json; without a tokenizer.json from config.json, which has no unk_token_id.
"""

import dataclasses
import random

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type


@dataclasses.dataclass
class Added:
    """An entry of added_tokens_decoder. Publishers have "▁" in `content` for spaces."""
    content: str
    special: bool = True
    rstrip: bool = False


@dataclasses.dataclass
class Directory:
    """What the publisher has: the pieces of tokenizer.model and the files beside it."""
    name: str
    architecture: str  # general.architecture
    pieces: list  # text, score, type
    merges: list  # of the tokenizer.json
    added: dict  # id: Added
    named: dict  # "bos": text, as in tokenizer_config.json
    embeddings: int  # vocab_size of config.json
    adds_prefix: bool = True
    has_tokenizer_json: bool = True


def looks_special(text):
    return (text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]") or text.startswith("<|") and text.endswith("|>")
            or text.startswith("<unused") and text.endswith(">"))


def converted(directory):
    """The metadata of the GGUF file."""
    is_phi3 = directory.architecture == "phi3"
    tokens = [f"[PAD{i}]" for i in range(directory.embeddings)]
    scores = [-10000.0] * len(tokens)
    types = [UNUSED] * len(tokens)
    for i, (text, score, type) in enumerate(directory.pieces):
        tokens[i], scores[i], types[i] = text, score, NORMAL if type == USER_DEFINED else type
    for i, token in directory.added.items():
        text = token.content
        if token.special or not is_phi3 and looks_special(text):
            types[i] = CONTROL
        else:
            text = text if is_phi3 else text.replace("▁", " ")
            types[i] = USER_DEFINED
        tokens[i], scores[i] = text, -1000.0
    values = {"model": "llama", "pre": "default", "tokens": tokens, "scores": scores, "token_type": types}
    ids = {token.content: i for i, token in directory.added.items()}
    keys = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}
    for kind, text in directory.named.items():
        if kind != "unk" or directory.has_tokenizer_json:
            values[keys[kind]] = ids[text]
    values["add_bos_token"] = True
    if not directory.adds_prefix:
        values["add_space_prefix"] = False
    return {"general.architecture": directory.architecture,
            **{f"tokenizer.ggml.{key}": value for key, value in values.items()}}


def tokenizer_json(directory):
    vocab = {text: i for i, (text, _, _) in enumerate(directory.pieces)}
    added = [{"id": i, "content": token.content, "single_word": False, "lstrip": False, "rstrip": token.rstrip,
              "normalized": False, "special": token.special} for i, token in sorted(directory.added.items())]
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepend = {"type": "Prepend", "prepend": "▁"}
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": {"type": "Sequence", "normalizers": [prepend, replace]} if directory.adds_prefix
            else replace,
            "pre_tokenizer": None if directory.adds_prefix else split, "post_processor": None,
            "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True,
                      "ignore_merges": False, "vocab": vocab, "merges": directory.merges}}


def directories(merges, alphabet):
    """In the manner of each family. `merges`: pairs of pieces, `alphabet`: single characters; a score says
    the rank of each piece's merge."""
    bytes_ = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
    made = [left + right for left, right in merges] + alphabet
    normal = [(piece, -float(rank), NORMAL) for rank, piece in enumerate(made, 1)]
    llama = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    named = {"bos": "<s>", "eos": "</s>", "unk": "<unk>"}
    own = {0: Added("<unk>"), 1: Added("<s>"), 2: Added("</s>")}
    pieces = llama + bytes_ + normal
    size = len(pieces)

    yield Directory("llama2", "llama", pieces, merges, own, named, size)
    # Meta's own release: no tokenizer.json, so that nothing says which piece is the unknown one.
    yield Directory("llama2_original", "llama", pieces, merges, own, named, size, has_tokenizer_json=False)

    tools = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
    controls = llama + [(tool, 0.0, CONTROL) for tool in tools]
    yield Directory("mistral", "llama", controls + bytes_ + normal, merges,
                    {i: Added(text) for i, (text, _, _) in enumerate(controls)}, named, size + len(tools))

    # A Mistral that was trained on chats afterwards: tokens behind the vocabulary, not all special.
    more = ["<|im_end|>", "<|im_start|>"]
    words = ["<tool_call>", "</tool_call>", "```", "    ", "        ", "- "]
    chat = {**own, **{size + i: Added(text) for i, text in enumerate(more)},
            **{size + len(more) + i: Added(text, special=False) for i, text in enumerate(words)}}
    yield Directory("mistral_chatml", "llama", pieces, merges, chat, named, size + 64)

    turns = ["<|endoftext|>", "<|assistant|>", "<|placeholder1|>", "<|system|>", "<|end|>", "<|user|>"]
    phi = {**own, 2: Added("</s>", special=False, rstrip=True),
           **{size + i: Added(text, rstrip=text != "<|endoftext|>") for i, text in enumerate(turns)}}
    yield Directory("phi3", "phi3", pieces, merges, phi, {**named, "eos": "<|endoftext|>"}, size + 64)

    # User-defined pieces: ends of lines, runs of spaces, tags of HTML. The tokenizer.json has merges for the
    # runs, so that they grow from the left.
    yield from gemma("gemma2", "gemma2", merges, bytes_, normal, ["<start_of_turn>", "<end_of_turn>"])
    yield from gemma("gemma3", "gemma3", merges, bytes_, normal,
                     ["<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>"])


def gemma(name, architecture, merges, bytes_, normal, turns):
    controls = ["<pad>", "<eos>", "<bos>"]
    lines = ["\n" * count for count in range(1, 32)]
    runs = ["▁" * count for count in range(2, 32)]
    tabs = ["\t" * count for count in range(2, 12)]
    tags = [f"<{slash}{tag}>" for tag in ("table", "tr", "td", "b", "code") for slash in ("", "/")]
    unused = [f"<unused{i}>" for i in range(4)]
    # The tokenizer.model has them as user-defined, the runs too.
    pieces = [(text, 0.0, CONTROL) for text in controls] + [("<unk>", 0.0, UNKNOWN)]
    special = {i: Added(text) for i, (text, _, _) in enumerate(pieces)}
    pieces += [(text, 0.0, USER_DEFINED) for text in ["<mask>"] + unused + turns + lines + runs + tabs + tags]
    defined = {text for text, _, _ in pieces}

    def is_normal(text):  # the others are words: a space is at their start alone
        return text not in defined and "▁" not in text[1:]

    pieces += bytes_ + [piece for piece in normal if is_normal(piece[0])]
    added = {**special}
    for i, (text, _, type) in enumerate(pieces):
        if type == USER_DEFINED:
            added[i] = Added(text, special=text in turns)
    grown = [("▁" * (count - 1), "▁") for count in range(31, 1, -1)]
    yield Directory(name, architecture, pieces,
                    grown + [pair for pair in merges if is_normal("".join(pair))],
                    added, {"bos": "<bos>", "eos": "<eos>", "unk": "<unk>", "pad": "<pad>"}, len(pieces) + 3,
                    adds_prefix=False)


def gemma4(merges, alphabet):
    """Metadata and tokenizer.json in the manner of Gemma 4 (Gemma4Model.set_vocab): byte fallback and merges
    of characters, of ends of lines and of runs of spaces, too; marks of reasoning and calls are
    USER_DEFINED, though the publisher calls them special."""
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|tool>", "<tool|>", "<|think|>", "<|turn>", "<turn|>"]
    visible = ["<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>']
    grown = [(mark * (count - 1), mark) for mark in ("\n", "▁") for count in range(2, 9)]
    merges = grown + [pair for pair in merges if pair not in grown]
    letters = list(dict.fromkeys(["\n", "▁"] + alphabet))
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made = list(dict.fromkeys(left + right for left, right in merges))
    normal = letters + [text for text in made if text not in letters]
    tokens = controls + visible + bytes_ + normal
    types = ([CONTROL] * len(controls) + [USER_DEFINED] * len(visible) + [BYTE] * len(bytes_) +
             [NORMAL] * len(normal))
    values = {"model": "gemma4", "tokens": tokens, "scores": [-1000.0] * len(tokens), "token_type": types,
              "merges": [f"{left} {right}" for left, right in merges], "bos_token_id": 2, "eos_token_id": 1,
              "unknown_token_id": 3, "padding_token_id": 0, "add_space_prefix": False, "add_bos_token": True}
    directory = Directory("gemma4", "gemma4", [(text, 0.0, type) for text, type in zip(tokens, types)], merges,
                          {i: Added(text) for i, text in enumerate(controls + visible)}, {}, len(tokens),
                          adds_prefix=False)
    return ({"general.architecture": "gemma4",
             **{f"tokenizer.ggml.{key}": value for key, value in values.items()}}, tokenizer_json(directory))


# Code and tables.

NAMES = ("value count total self index result text key item path line row column width left right node data "
         "i j n x callback getUser HTTP_OK __init__ _tmp данные 値").split()


def expression(rng, depth=0):
    kinds = [lambda: rng.choice(NAMES), lambda: str(rng.randrange(1000)), lambda: repr(rng.choice(NAMES)),
             lambda: "0x%04X" % rng.randrange(1 << 16), lambda: f"{rng.random() * 100:.3f}"]
    if depth < 2:
        kinds += [
            lambda: f"{expression(rng, depth + 1)} {rng.choice(['+', '-', '*', '==', '!=', '<=', '&&', '->'])} "
                    f"{expression(rng, depth + 1)}",
            lambda: f"{rng.choice(NAMES)}({', '.join(expression(rng, depth + 1) for _ in range(rng.randrange(3)))})",
            lambda: f"{rng.choice(NAMES)}[{expression(rng, depth + 1)}]"]
    return rng.choice(kinds)()


def code(rng):
    unit = rng.choice(["    ", "  ", "\t", " ", "   "])
    depth, lines = rng.randrange(4), []
    for _ in range(rng.randint(1, 8)):
        kind = rng.randrange(6)
        pad = unit * depth
        if kind == 0:
            lines.append(f"{pad}{rng.choice(['if', 'while', 'for x in', 'elif'])} {expression(rng)}:")
            depth = min(depth + 1, 9)
        elif kind == 1:
            lines.append(f"{pad}{rng.choice(['return', 'yield', 'raise'])} {expression(rng)}")
            depth = max(depth - rng.randint(0, 2), 0)
        elif kind == 2:
            lines.append(f"{pad}{rng.choice(NAMES):<{rng.randrange(20)}} = {expression(rng)};")
        elif kind == 3:
            lines.append(rng.choice(["", pad, pad + "  ", pad + rng.choice(["}", "});", "]", "end"])]))
        elif kind == 4:
            lines.append(f"{pad}{rng.choice(['#', '//', '--', ' *'])} {'-' * rng.randrange(40)} {rng.choice(NAMES)}")
        else:
            lines.append(f"{pad}{rng.choice(NAMES)}({expression(rng)}){' ' * rng.randrange(30)}// {rng.choice(NAMES)}")
    return rng.choice(["\n", "\n", "\r\n", "\n\n"]).join(lines)


def table(rng):
    columns = rng.randint(2, 5)
    widths = [rng.randint(3, 30) for _ in range(columns)]
    cells = [[expression(rng, 2) for _ in range(columns)] for _ in range(rng.randint(1, 4))]
    style = rng.randrange(5)
    lines = []
    for number, row in enumerate(cells):
        padded = [text.ljust(width) if rng.random() < 0.7 else text.rjust(width)
                  for text, width in zip(row, widths)]
        lines.append({0: "| " + " | ".join(padded) + " |", 1: "  ".join(padded), 2: "\t".join(row),
                      3: "│" + "│".join(padded) + "│",
                      4: "<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>"}[style])
        if number == 0 and style in (0, 3):
            lines.append({0: "|" + "|".join("-" * (width + 2) for width in widths) + "|",
                          3: "├" + "┼".join("─" * width for width in widths) + "┤"}[style])
        elif number == 0:
            lines.append(rng.choice(["", "=" * sum(widths), "_" * sum(widths), " ".join("-" * w for w in widths)]))
    return "\n".join(lines) + rng.choice(["", "\n", "   ", "\n\n\n"])


def page(rng):
    """Text taken from a PDF: columns and indents by spaces."""
    lines = []
    for _ in range(rng.randint(1, 5)):
        words = [rng.choice(NAMES) for _ in range(rng.randint(1, 6))]
        line = " " * rng.choice([0, 0, 1, 2, 4, 8, 10, 33, 70])
        for word in words:
            line += word + " " * rng.choice([1, 1, 1, 2, 3, 5, 16, 31, 32])
        lines.append(line if rng.random() < 0.3 else line.rstrip())
    return rng.choice(["\n", "\n\n", "\f"]).join(lines)


def code_and_tables(seed, count):
    rng = random.Random(seed)
    return [rng.choice([code, code, table, page])(rng) for _ in range(count)]

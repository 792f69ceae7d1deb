#!/usr/bin/env python3
"""Writes a checkpoint of random weights in int4, for timing experts that stay in a file.

    random_experts.py CONFIG.json FOLDER [--layers N]

CONFIG.json: of the family qwen3_moe, for example bench/configs/qwen3-30b-a3b.json. --layers: so many of its
layers, for a machine without room for all. FOLDER gets config.json and model.safetensors in the form that
`annulusd --convert --weights-dtype int4_g64` writes: experts and attention are 4-bit codes with a scale for
each 64, the embedding and the head int8. There is no tokenizer: prompts are token ids.

Every tensor is a piece, taken from a random place, of the same 64 MiB of random bytes: that is fast, and
experts differ. Needs nothing but Python.
"""

import argparse
import json
import os
import pathlib
import random
import struct

POOL_BYTES = 64 << 20
GROUP = 64  # of int4_g64
HEADER_ALIGNMENT = 8


def bf16(value):
    return struct.pack("<f", value)[2:]


class Tensors:
    """Names and shapes in the order of the file, and what their bytes are made by."""

    def __init__(self, pool, draw):
        self.pool, self.draw, self.header, self.parts, self.end = pool, draw, {}, [], 0

    def add(self, name, dtype, shape, size, make):
        self.header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [self.end, self.end + size]}
        self.end += size
        self.parts.append(make)

    def codes(self, name, rows, cols, bits):
        """A matrix whose values have the variance 1 / cols, so that activations keep their size."""
        row_bytes = cols * bits // 8
        size = rows * row_bytes
        self.add(name, "I8", [rows, row_bytes], size, lambda: self.random_bytes(size))
        levels = 1 << bits
        scale = bf16((12 / cols) ** 0.5 / levels)  # uniform codes have the variance levels^2 / 12
        groups = cols // GROUP if bits == 4 else 1
        self.add(name + "_scale", "BF16", [rows, groups], 2 * rows * groups, lambda: [scale * (rows * groups)])

    def random_bytes(self, size):
        while size > 0:
            start = self.draw.randrange(len(self.pool) // 2)
            piece = self.pool[start:start + min(size, len(self.pool) // 2)]
            yield piece
            size -= len(piece)

    def matrix(self, name, rows, cols):
        self.codes(name, rows, cols, 4)

    def ones(self, name, size):
        self.add(name, "BF16", [size], 2 * size, lambda: [bf16(1.0) * size])

    def write(self, path):
        header = json.dumps(self.header, separators=(",", ":")).encode()
        header += b" " * (-len(header) % HEADER_ALIGNMENT)
        with open(path, "wb", buffering=1 << 22) as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for make in self.parts:
                for piece in make():
                    file.write(piece)


def add_layer(tensors, config, layer):
    prefix = f"model.layers.{layer}."
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    for name in ("input_layernorm", "post_attention_layernorm"):
        tensors.ones(f"{prefix}{name}.weight", hidden)
    for name in ("q_norm", "k_norm"):
        tensors.ones(f"{prefix}self_attn.{name}.weight", head)
    for name, rows, cols in (("q", queries, hidden), ("k", keys, hidden), ("v", keys, hidden), ("o", hidden, queries)):
        tensors.matrix(f"{prefix}self_attn.{name}_proj.weight", rows, cols)
    tensors.matrix(prefix + "mlp.gate.weight", config["num_experts"], hidden)
    width = config["moe_intermediate_size"]
    for expert in range(config["num_experts"]):
        for name, rows, cols in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
            tensors.matrix(f"{prefix}mlp.experts.{expert}.{name}_proj.weight", rows, cols)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int)
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    if config.get("model_type") != "qwen3_moe" or config.get("mlp_only_layers") or config.get("tie_word_embeddings"):
        parser.error(f"{options.config} must be of the family qwen3_moe, with experts in every layer and a head of "
                     "its own")
    if any(config[key] % GROUP for key in ("hidden_size", "moe_intermediate_size", "head_dim")):
        parser.error(f"{options.config}: sizes must be multiples of {GROUP}")
    if options.layers is not None:
        config["num_hidden_layers"] = options.layers
    draw = random.Random(1)
    # No code of int8 is -128.
    pool = draw.randbytes(POOL_BYTES).translate(bytes(129 if byte == 128 else byte for byte in range(256)))
    tensors = Tensors(pool, draw)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors.codes(name, config["vocab_size"], config["hidden_size"], 8)
    tensors.ones("model.norm.weight", config["hidden_size"])
    for layer in range(config["num_hidden_layers"]):
        add_layer(tensors, config, layer)
    os.makedirs(options.folder, exist_ok=True)
    (options.folder / "config.json").write_text(json.dumps(config, indent=2))
    tensors.write(options.folder / "model.safetensors")
    print(f"{options.folder / 'model.safetensors'}: {tensors.end / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()

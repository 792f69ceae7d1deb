"""rope_frequencies.json: bits of the float32 inverse frequencies that Transformers forms, and the
float64 angles at long positions that follow from them."""

import json
import math
import struct

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from recipe import HERE, rope, sizes

POSITIONS = (1, 4097, 131071, 1000003, 9999991)


def bits(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def settings():
    """(head_dim, theta, total length or None, the other keys)."""
    llama3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=8192)
    for head_dim in (16, 24, 32, 64, 128):
        for theta in (10000.0, 500000.0, 1000000.0):
            yield head_dim, theta, None, {}
    yield 128, 500000.0, None, dict(factor=8.0, **llama3)
    yield 64, 500000.0, None, dict(factor=32.0, **llama3)
    yield 128, 10000.0, None, dict(rope_type="linear", factor=4.0)
    yield 64, 10000.0, None, dict(rope_type="linear", factor=2.5)
    yield 64, 10000.0, 2048, dict(rope_type="dynamic", factor=2.0)
    yield 64, 10000.0, 2049, dict(rope_type="dynamic", factor=2.0)
    yield 128, 10000.0, 30000, dict(rope_type="dynamic", factor=8.0)
    yarn = dict(rope_type="yarn", original_max_position_embeddings=4096)
    yield 64, 150000.0, None, dict(factor=32.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                                   **yarn)
    yield 128, 1000000.0, None, dict(factor=4.0, **{**yarn,
                                                    "original_max_position_embeddings": 32768})
    yield 64, 10000.0, None, dict(factor=40.0, mscale=1.0, mscale_all_dim=0.5, **yarn)
    yield 64, 10000.0, None, dict(factor=16.0, attention_factor=1.25, beta_fast=20.0,
                                  beta_slow=2.0, **yarn)
    factors = dict(short_factor=[1 + 0.01 * i for i in range(24)],
                   long_factor=[1 + 0.5 * i for i in range(24)])
    longrope = dict(rope_type="longrope", original_max_position_embeddings=512,
                    partial_rotary_factor=0.75, **factors)
    yield 64, 10000.0, 512, longrope
    yield 64, 10000.0, 513, longrope
    yield 64, 10000.0, 513, dict(attention_factor=1.5, **longrope)


def write_frequencies(name):
    cases = []
    for head_dim, theta, total, rest in settings():
        config = LlamaConfig(**sizes(100, 2 * head_dim, 64, 1, 2, 1, head_dim),
                             **rope(theta, **rest))
        rotary = LlamaRotaryEmbedding(config)
        values, scale = rotary.inv_freq.float(), rotary.attention_scaling
        if total is not None:
            values, scale = ROPE_INIT_FUNCTIONS[rest["rope_type"]](config, seq_len=total)
        frequencies = values.float().tolist()
        case = {"head_dim": head_dim, **config.rope_parameters, "scale": scale,
                "bits": [bits(value) for value in frequencies]}
        if total is not None:
            case["total_length"] = total
        # Every seventh pair, so that fast and slow ones are there.
        case["angles"] = [[position, pair, scale * math.cos(frequencies[pair] * position),
                           scale * math.sin(frequencies[pair] * position)]
                          for position in POSITIONS for pair in range(0, len(frequencies), 7)]
        cases.append(case)
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / name).write_text("[\n" + text + "\n]\n")

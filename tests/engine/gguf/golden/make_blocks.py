"""Writes blocks.json: random blocks of each quantized GGUF type and the values that the `gguf`
package (PyPI) reads from them. Values are the hex digits of their float32 bits.

    pip install gguf numpy && python make_blocks.py > blocks.json
"""

import json

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCKS = 2
# Where a block's float16 numbers lie, so that they can be made of a sensible size.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": [],
}


def main():
    rng = np.random.default_rng(1)
    golden = {}
    for name, halves in HALVES.items():
        kind = GGMLQuantizationType[name]
        size = GGML_QUANT_SIZES[kind][1]
        blocks = rng.integers(0, 256, (BLOCKS, size), dtype=np.uint8)
        for at in halves:
            scale = rng.uniform(-0.1, 0.1, BLOCKS).astype(np.float16)
            blocks[:, at:at + 2] = scale.view(np.uint8).reshape(BLOCKS, 2)
        if name == "MXFP4":
            blocks[:, 0] = rng.integers(110, 140, BLOCKS)
        values = quants.dequantize(blocks, kind).astype(np.float32).reshape(-1)
        golden[name] = {
            "blocks": blocks.tobytes().hex(),
            "values": values.view(np.uint32).astype(">u4").tobytes().hex(),
        }
    print(json.dumps(golden, indent=1))


main()

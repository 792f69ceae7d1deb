#!/usr/bin/env python3
"""Makes a tiny llama for each GGUF element type and the logits that Hugging Face Transformers computes
with its dequantised weights. Not needed to build or to test: the results are committed.

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install torch transformers accelerate gguf
    /tmp/goldens/bin/python tests/golden/gguf/make_gguf_goldens.py

Matrices hold random codes with scales of a sensible size, so every code of a type occurs. Transformers
reads the files itself (gguf_file=), by the `gguf` package's dequantisation. See README.md.
"""

import json
import pathlib

import gguf
import numpy as np
import torch
import transformers
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

HERE = pathlib.Path(__file__).resolve().parent
VOCABULARY, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD = 32, 4, 1, 16, 64
PROMPT_TOKENS = 20
# Where a block's float16 numbers lie, so that they can be made of a sensible size: the scale, and
# what is added or taken away.
HALVES = {
    "Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "IQ4_NL": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "MXFP4": [],
}
PLAIN = ["F32", "F16", "BF16"]
KEPT = ["Q8_0", "Q4_0", "Q4_1"]  # served as stored; other quantised matrices become bf16
# Of Q4_1 and Q5_1: the minimum, in scales, puts the values around 0.
MINIMUM = {"Q4_1": -7.5, "Q5_1": -15.5}


def random_blocks(name, rows, cols, rng):
    """Blocks [rows, bytes of a row] whose values have a deviation of 1 / sqrt(cols)."""
    kind = GGMLQuantizationType[name]
    block, size = GGML_QUANT_SIZES[kind]
    count = rows * cols // block
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    scales = rng.uniform(0.5, 1.5, (count, 2)) * rng.choice([-1, 1], (count, 1))
    if name in MINIMUM:
        scales[:, 1] = scales[:, 0] * MINIMUM[name] * rng.uniform(0.8, 1.2, count)

    def put(factor):
        for index, at in enumerate(HALVES[name]):
            halves = (scales[:, index] * factor).astype(np.float16)
            blocks[:, at:at + 2] = halves.view(np.uint8).reshape(count, 2)
        if name == "MXFP4":
            exponent = 127 + int(np.round(np.log2(factor)))
            blocks[:, 0] = rng.integers(exponent - 1, exponent + 2, count)

    put(1)
    put(1 / (quants.dequantize(blocks, kind).std() * cols ** 0.5))
    return blocks.reshape(rows, -1)


def add(writer, tensor, name, rows, cols, rng):
    kind = GGMLQuantizationType[name]
    if name in PLAIN:
        values = (rng.standard_normal((rows, cols)) / cols ** 0.5).astype(np.float32)
        stored = quants.quantize(values, kind)
        if name == "F32":
            stored = values
    else:
        stored = random_blocks(name, rows, cols, rng)
    writer.add_tensor(tensor, stored, raw_dtype=kind)


def write_file(path, name, seed):
    rng = np.random.default_rng(seed)
    wide = GGML_QUANT_SIZES[GGMLQuantizationType[name]][0]
    hidden = max(wide, 64)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(256)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"t{i}" for i in range(VOCABULARY)])
    writer.add_token_merges([])
    # Matrices whose rows are shorter than a block of the type.
    narrow = name if wide <= 32 else "Q4_0"
    add(writer, "token_embd.weight", name, VOCABULARY, hidden, rng)
    add(writer, "blk.0.attn_q.weight", name, HEADS * HEAD_DIM, hidden, rng)
    add(writer, "blk.0.attn_k.weight", name, KV_HEADS * HEAD_DIM, hidden, rng)
    add(writer, "blk.0.attn_v.weight", name, KV_HEADS * HEAD_DIM, hidden, rng)
    add(writer, "blk.0.attn_output.weight", narrow, hidden, HEADS * HEAD_DIM, rng)
    add(writer, "blk.0.ffn_gate.weight", name, FEED_FORWARD, hidden, rng)
    add(writer, "blk.0.ffn_up.weight", name, FEED_FORWARD, hidden, rng)
    add(writer, "blk.0.ffn_down.weight", narrow, hidden, FEED_FORWARD, rng)
    for norm in ("blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"):
        writer.add_tensor(norm, rng.uniform(0.7, 1.3, hidden).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return narrow


@torch.no_grad()
def logits_of(model, prompt):
    return model(torch.tensor([prompt]), use_cache=False).logits[0].numpy().astype("<f4")


def round_to_bf16(model, name, narrow):
    """The matrices that the engine widens become bf16 there, also the embedding."""
    for key, parameter in model.named_parameters():
        stored = narrow if "o_proj" in key or "down_proj" in key else name
        if parameter.dim() == 2 and stored not in KEPT + PLAIN:
            parameter.data.copy_(parameter.data.bfloat16().float())


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, VOCABULARY, PROMPT_TOKENS).tolist()
    versions = {p.__name__: p.__version__.split("+")[0] for p in (torch, transformers)}
    (HERE / "expected.json").write_text(json.dumps({"made_with": versions, "prompt_ids": prompt}) + "\n")
    for seed, name in enumerate(PLAIN + list(HALVES), 1):
        path = HERE / f"{name}.gguf"
        narrow = write_file(path, name, seed)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            HERE, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager").eval()
        logits = logits_of(model, prompt)
        (HERE / f"{name}.exact.f32").write_bytes(logits.tobytes())
        moved = ""
        if name not in KEPT + PLAIN:
            round_to_bf16(model, name, narrow)
            served = logits_of(model, prompt)
            (HERE / f"{name}.served.f32").write_bytes(served.tobytes())
            moved = f", bf16 moves them by {np.abs(served - logits).max() / np.abs(logits).max():.1e}"
        print(f"{name}: {path.stat().st_size} bytes, largest logit {np.abs(logits).max():.2f}{moved}", flush=True)


if __name__ == "__main__":
    main()

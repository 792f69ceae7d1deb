#!/usr/bin/env python3
"""Makes the tiny random checkpoints of this folder and what Hugging Face Transformers computes
with them. Not needed to build or to test: the results are committed.

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install torch transformers
    /tmp/goldens/bin/python tests/golden/make_goldens.py

Made with the versions in VERSIONS below. Everything is seeded; other versions may give other
weights, so remake all or none. See README.md for what each folder holds.
"""

import json
import pathlib
import shutil
import struct

import torch
import transformers
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

VERSIONS = "torch 2.15.0, transformers 5.23.0"
HERE = pathlib.Path(__file__).resolve().parent
PROMPT_TOKENS = 150
GREEDY_TOKENS = 64
SMALLEST_GAP = 0.02  # between the two best logits, at every greedy step


def randomize(model, seed):
    """Weights that make attention sharp and logits spread, unlike the near-uniform default."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if name.endswith("norm.weight"):
            value = 1 + 0.2 * noise
        elif name.endswith(".bias"):
            value = 0.3 * noise
        elif "embed_tokens" in name:
            value = 0.5 * noise
        elif "q_proj" in name or "k_proj" in name:
            value = 2 * noise / parameter.shape[1] ** 0.5
        else:
            value = noise / parameter.shape[1] ** 0.5
        parameter.data.copy_(value)


@torch.no_grad()
def logits_of(model, ids):
    """Every position at once, without a cache: the plainest way."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, prompt):
    ids, smallest_gap = list(prompt), float("inf")
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logits_of(model, ids)[-1], 2)
        smallest_gap = min(smallest_gap, float(best.values[0] - best.values[1]))
        ids.append(int(best.indices[0]))
    return ids[len(prompt):], smallest_gap


def largest_error(model, prompt, logits):
    """Of the float32 logits against float64, relative to the largest logit."""
    exact = logits_of(model.double(), prompt)
    model.float()
    return float((exact - logits).abs().max() / exact.abs().max())


def rounded(model, dtype):
    """The weights as `dtype` stores them, still in float32 arithmetic."""
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.to(dtype).float())


def candidate(make, dtype, vocabulary):
    """The first seed whose greedy path has no near-ties."""
    for seed in range(1, 1000):
        model = make().float().eval()
        randomize(model, seed)
        rounded(model, dtype)
        generator = torch.Generator().manual_seed(seed)
        prompt = torch.randint(3, vocabulary, (PROMPT_TOKENS,), generator=generator).tolist()
        ids, gap = greedy(model, prompt)
        if gap >= SMALLEST_GAP and len(set(ids)) > 8:
            return seed, model, prompt, ids, gap
    raise RuntimeError("no seed gives a clear greedy path")


def older_style(config):
    """The same settings as Transformers 4 writes them."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    config["torch_dtype"] = config.pop("dtype")
    config.pop("transformers_version")
    return config


def write(name, make, dtype, vocabulary, shard_size="1GB", change_config=None,
          change_model=None):
    seed, model, prompt, ids, gap = candidate(make, dtype, vocabulary)
    logits = logits_of(model, prompt)
    error = largest_error(model, prompt, logits)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    if change_model is not None:
        model = change_model(model)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if change_config is not None:
        path = folder / "config.json"
        config = change_config(json.loads(path.read_text()))
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    (folder / "logits.f32").write_bytes(logits.numpy().astype("<f4").tobytes())
    expected = {
        "made_with": VERSIONS,
        "seed": seed,
        "vocabulary": vocabulary,
        "prompt_ids": prompt,
        "greedy_ids": ids,
        "smallest_greedy_gap": round(gap, 5),
        "largest_logit": round(float(logits.abs().max()), 5),
        "float32_error": float(f"{error:.2g}"),
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: seed {seed}, gap {gap:.3f}, float32 error {error:.1e}, {size} bytes")


def sizes(vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim, **rest):
    return dict(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
                num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=head_dim,
                max_position_embeddings=2048, attn_implementation="eager", **rest)


def rope(theta, **rest):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **rest}}


LAYER_TYPES = (["sliding_attention"] * 2 + ["full_attention"]) * 2
WINDOWS_SIZES = (101, 40, 40, 6, 4, 2, 16)


def windows_model():
    """Transformers' Llama has no per-layer windows; its Qwen2 is the same graph with them, and with
    a bias on query, key and value."""
    return Qwen2ForCausalLM(Qwen2Config(
        **sizes(*WINDOWS_SIZES), **rope(10000.0), tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=17, layer_types=LAYER_TYPES))


def windows_as_llama(model):
    """The Qwen2 graph as a Llama with `attention_bias`, whose output bias is zero here."""
    config = LlamaConfig(**sizes(*WINDOWS_SIZES), **rope(10000.0),
                         tie_word_embeddings=True, attention_bias=True)
    llama = LlamaForCausalLM(config).float()
    missing, unexpected = llama.load_state_dict(model.state_dict(), strict=False)
    assert not unexpected and all(name.endswith("o_proj.bias") for name in missing)
    for layer in llama.model.layers:
        layer.self_attn.o_proj.bias.data.zero_()
    return llama


def with_windows(config):
    config["sliding_window"] = 17
    config["layer_types"] = LAYER_TYPES
    return config


def write_frequencies():
    """Bits of the float32 inverse frequencies that Transformers forms."""
    llama3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=8192)
    settings = [(head_dim, theta, {}) for head_dim in (16, 24, 32, 64, 128)
                for theta in (10000.0, 500000.0, 1000000.0)]
    settings += [(128, 500000.0, dict(factor=8.0, **llama3)),
                 (64, 500000.0, dict(factor=32.0, **llama3)),
                 (128, 10000.0, dict(rope_type="linear", factor=4.0)),
                 (64, 10000.0, dict(rope_type="linear", factor=2.5))]
    cases = []
    for head_dim, theta, rest in settings:
        config = LlamaConfig(**sizes(100, 2 * head_dim, 64, 1, 2, 1, head_dim),
                             **rope(theta, **rest))
        values = LlamaRotaryEmbedding(config).inv_freq.float().tolist()
        bits = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
        cases.append({"head_dim": head_dim, **config.rope_parameters, "bits": bits})
    text = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "rope_frequencies.json").write_text("[\n" + text + "\n]\n")


def main():
    torch.set_num_threads(1)
    installed = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"
    if installed != VERSIONS:
        print(f"note: {installed} here, the committed files were made with {VERSIONS}")
    write("llama_mha",
          lambda: LlamaForCausalLM(LlamaConfig(**sizes(131, 48, 100, 2, 3, 3, 16),
                                               **rope(10000.0))),
          torch.float32, 131)
    write("llama_gqa_bf16",
          lambda: LlamaForCausalLM(LlamaConfig(**sizes(120, 64, 80, 3, 4, 2, 24),
                                               **rope(500000.0), rms_norm_eps=1e-5,
                                               tie_word_embeddings=True)),
          torch.bfloat16, 120, change_config=older_style)
    write("llama_rope3_sharded",
          lambda: LlamaForCausalLM(LlamaConfig(**sizes(150, 64, 64, 2, 4, 1, 32),
                                               **rope(10000.0, rope_type="llama3", factor=8.0,
                                                      low_freq_factor=1.0, high_freq_factor=4.0,
                                                      original_max_position_embeddings=64))),
          torch.float16, 150, shard_size="70KB")
    write("llama_windows", windows_model, torch.float16, 101, change_config=with_windows,
          change_model=windows_as_llama)
    write("mistral_window",
          lambda: MistralForCausalLM(MistralConfig(**sizes(128, 64, 96, 2, 4, 2, 16),
                                                   **rope(1000000.0), sliding_window=17)),
          torch.bfloat16, 128, change_config=older_style)
    write_frequencies()


if __name__ == "__main__":
    main()

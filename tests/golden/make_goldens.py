#!/usr/bin/env python3
"""Makes the tiny random checkpoints of this folder and what Hugging Face Transformers computes
with them. Not needed to build or to test: the results are committed.

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install torch transformers
    /tmp/goldens/bin/python tests/golden/make_goldens.py [NAME...]

Made with the versions in recipe.py. Everything is seeded; other versions may give other weights.
Without names, all are made. See README.md for what each folder holds.
"""

import sys

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

import centred_families
import expert_families
import families
import frequencies
import gemma3n_families
import gemma4_families
import later_families
from recipe import INSTALLED, VERSIONS, older_style, rope, rounded, sizes, write

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


def llama_mha(name):
    write(name, lambda: LlamaForCausalLM(LlamaConfig(**sizes(131, 48, 100, 2, 3, 3, 16),
                                                     **rope(10000.0))), torch.float32, 131)


def llama_gqa_bf16(name):
    write(name, lambda: LlamaForCausalLM(LlamaConfig(
        **sizes(120, 64, 80, 3, 4, 2, 24), **rope(500000.0), rms_norm_eps=1e-5,
        tie_word_embeddings=True)), torch.bfloat16, 120, change_config=older_style)


def llama_rope3_sharded(name):
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    write(name, lambda: LlamaForCausalLM(LlamaConfig(**sizes(150, 64, 64, 2, 4, 1, 32),
                                                     **rope(10000.0, **llama3))),
          torch.float16, 150, shard_size="70KB")


def llama_windows(name):
    """Six layers magnify roundings, so attention is less sharp than elsewhere."""
    def prepare(model):
        for key, parameter in model.named_parameters():
            if key.endswith(("q_proj.weight", "k_proj.weight")):
                parameter.data.mul_(0.7)
        rounded(model, torch.float16)
    write(name, windows_model, torch.float16, 101, change_config=with_windows,
          change_model=windows_as_llama, prepare=prepare)


def mistral_window(name):
    write(name, lambda: MistralForCausalLM(MistralConfig(
        **sizes(128, 64, 96, 2, 4, 2, 16), **rope(1000000.0), sliding_window=17)),
        torch.bfloat16, 128, change_config=older_style)


RECIPES = {recipe.__name__: recipe for recipe in
           (llama_mha, llama_gqa_bf16, llama_rope3_sharded, llama_windows, mistral_window)}
RECIPES.update(families.RECIPES)
RECIPES.update(later_families.RECIPES)
RECIPES.update(expert_families.RECIPES)
RECIPES.update(gemma3n_families.RECIPES)
RECIPES.update(gemma4_families.RECIPES)
RECIPES.update(centred_families.RECIPES)
RECIPES["rope_frequencies.json"] = frequencies.write_frequencies


def main():
    torch.set_num_threads(1)
    if INSTALLED not in VERSIONS:
        print(f"note: {INSTALLED} here, the committed files were made with {' or '.join(VERSIONS)}")
    for name in sys.argv[1:] or RECIPES:
        RECIPES[name](name)


if __name__ == "__main__":
    main()

"""Recipes of families whose experts stand beside a block that every token meets: see families.py."""

import torch
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM

from recipe import older_style, rope, sizes, write

BF16 = torch.bfloat16


def qwen2_moe(name):
    """The shared block has a gate of its own; weights of the chosen experts do not add up to 1."""
    write(name, lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(
        **sizes(101, 32, 40, 2, 4, 2), **rope(1000000.0), num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=20, shared_expert_intermediate_size=28)), BF16, 101)


def qwen2_moe_windows(name):
    """Layers 0 and 2 slide, by the family's rule; layer 1 has no experts; weights add up to 1; no
    biases."""
    def older(config):
        config.pop("layer_types")
        return older_style(config)
    write(name, lambda: Qwen2MoeForCausalLM(Qwen2MoeConfig(
        **sizes(101, 32, 40, 4, 2, 1), **rope(1000000.0), num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=16, shared_expert_intermediate_size=24, norm_topk_prob=True,
        mlp_only_layers=[1], qkv_bias=False, use_sliding_window=True, sliding_window=17,
        max_window_layers=3, tie_word_embeddings=True)), BF16, 101, change_config=older)


RECIPES = {made.__name__: made for made in (qwen2_moe, qwen2_moe_windows)}

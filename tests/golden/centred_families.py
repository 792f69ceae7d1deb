"""Recipes of families whose norms subtract the mean first: see families.py."""

import torch
from transformers import (Cohere2Config, Cohere2ForCausalLM, CohereConfig, CohereForCausalLM,
                          StableLmConfig, StableLmForCausalLM, Starcoder2Config,
                          Starcoder2ForCausalLM)

from recipe import loud, older_style, rope, rounded, sizes, write

BF16 = torch.bfloat16
NO_TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)


def made_loud(model):
    """Otherwise a tied head repeats its token."""
    loud(model, 3.0)
    rounded(model, BF16)


def cohere(name):
    """Attention and block read the same norm; rope turns neighbours; logits are scaled."""
    write(name, lambda: CohereForCausalLM(CohereConfig(
        **sizes(101, 48, 48, 2, 3, 1), **rope(8000000.0), logit_scale=0.75, **NO_TOKENS)), BF16,
        101, prepare=made_loud, change_config=older_style)


def cohere_head_norms(name):
    """Every head of queries and keys has a norm with a weight of its own; biases; a head of its own."""
    write(name, lambda: CohereForCausalLM(CohereConfig(
        **sizes(101, 48, 40, 2, 4, 2), **rope(500000.0), use_qk_norm=True, attention_bias=True,
        logit_scale=0.5, tie_word_embeddings=False, **NO_TOKENS)), BF16, 101)


def cohere2(name):
    """Full layers have no rope; keys as publishers write them."""
    def older(config):
        config.pop("layer_types")
        config["sliding_window_pattern"] = 4
        return older_style(config)
    write(name, lambda: Cohere2ForCausalLM(Cohere2Config(
        **sizes(101, 40, 40, 4, 2, 1), **rope(50000.0), sliding_window=17, logit_scale=0.75,
        **NO_TOKENS)), BF16, 101, prepare=made_loud, change_config=older)


def cohere2_untied(name):
    """Kinds of layers by a list; biases."""
    write(name, lambda: Cohere2ForCausalLM(Cohere2Config(
        **sizes(101, 48, 48, 3, 4, 2), **rope(10000.0), sliding_window=33, logit_scale=1.0,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        attention_bias=True, tie_word_embeddings=False, **NO_TOKENS)), BF16, 101)


def stablelm(name):
    """A quarter of each head is rotated; keys as publishers write them."""
    def older(config):
        config["partial_rotary_factor"] = config["rope_parameters"].pop("partial_rotary_factor")
        return older_style(config)
    write(name, lambda: StableLmForCausalLM(StableLmConfig(
        **sizes(101, 48, 56, 2, 3, 3), **rope(10000.0, partial_rotary_factor=0.25),
        use_qkv_bias=True, **NO_TOKENS)), BF16, 101, change_config=older)


def stablelm_parallel(name):
    """Attention and block read the same norm; norms of heads have tensors of their own."""
    write(name, lambda: StableLmForCausalLM(StableLmConfig(
        **sizes(101, 48, 56, 2, 4, 2), **rope(100000.0, partial_rotary_factor=0.5),
        qk_layernorm=True, use_parallel_residual=True, **NO_TOKENS)), BF16, 101)


def starcoder2(name):
    """A block without a gate; biases everywhere; a window."""
    write(name, lambda: Starcoder2ForCausalLM(Starcoder2Config(
        **sizes(101, 48, 80, 2, 3, 1), **rope(999999.4420358813), sliding_window=31,
        **NO_TOKENS)), BF16, 101, prepare=made_loud, change_config=older_style)


def starcoder2_plain(name):
    """Without biases of projections, without a window, with a head of its own."""
    write(name, lambda: Starcoder2ForCausalLM(Starcoder2Config(
        **sizes(101, 48, 96, 2, 4, 2), **rope(10000.0), use_bias=False,
        tie_word_embeddings=False, **NO_TOKENS)), BF16, 101)


RECIPES = {made.__name__: made for made in
           (cohere, cohere_head_norms, cohere2, cohere2_untied, stablelm, stablelm_parallel,
            starcoder2, starcoder2_plain)}

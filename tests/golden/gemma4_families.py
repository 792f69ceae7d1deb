"""Recipes of Gemma 4, whose layers differ in more than their windows: see families.py."""

import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma4Config, Gemma4ForCausalLM, Gemma4ForConditionalGeneration,
                          Gemma4TextConfig)

from recipe import rounded, sizes, write

BF16 = torch.bfloat16
SLIDING, FULL = "sliding_attention", "full_attention"
# What save_pretrained writes of one layer, and publishers wrote of all.
LISTED = "per_layer_config"


def prepare(model):
    rounded(model, BF16)
    for name, buffer in model.named_buffers():
        if name.endswith(("embed_scale", "layer_scalar")):
            buffer.copy_(buffer.to(BF16).float())


def gemma4(name):
    """As E2B: the last three layers attend keys and values of others and have wider blocks; every
    layer has an input of its own. The text half of a model that also sees, with the keys that
    publishers wrote; the file has keys and values of the layers that share, which nothing uses."""
    def make():
        text = Gemma4TextConfig(
            **sizes(101, 40, 24, 6, 4, 2, 8), global_head_dim=16, sliding_window=17,
            layer_types=[SLIDING, SLIDING, FULL] * 2, num_kv_shared_layers=3,
            use_double_wide_mlp=True, hidden_size_per_layer_input=6,
            vocab_size_per_layer_input=110)
        vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                      num_attention_heads=1, num_key_value_heads=1, head_dim=8,
                      position_embedding_size=16)
        return Gemma4ForConditionalGeneration(Gemma4Config(
            text_config=text.to_dict(), vision_config=vision, audio_config=None,
            attn_implementation="eager", experts_implementation="eager"))

    def published(config):
        text = config["text_config"]
        text["global_head_dim"] = text.pop(LISTED)["2"]["head_dim"]
        text["num_global_key_value_heads"] = None
        return config

    def with_unread(model, folder):
        tensors = load_file(folder / "model.safetensors")
        for part in ("k_proj", "v_proj", "k_norm"):
            at = "model.language_model.layers.{}.self_attn." + part + ".weight"
            tensors[at.format(4)] = tensors[at.format(1)].clone()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    write(name, make, BF16, 101, prepare=prepare, change_config=published, store=with_unread)


def gemma4_moe(name):
    """As 26B-A4B: experts beside the block of every layer; full layers have fewer and larger heads,
    whose keys are the values, too; a cap of logits. Keys as Transformers writes them."""
    write(name, lambda: Gemma4ForCausalLM(Gemma4TextConfig(
        **sizes(101, 40, 24, 3, 4, 2, 8), global_head_dim=16, num_global_key_value_heads=1,
        attention_k_eq_v=True, sliding_window=17, layer_types=[FULL, SLIDING, FULL],
        hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
        moe_intermediate_size=12, final_logit_softcapping=30.0,
        use_bidirectional_attention="vision")), BF16, 101, prepare=prepare)


RECIPES = {made.__name__: made for made in (gemma4, gemma4_moe)}

"""Recipes of Gemma 3n, whose rows have several residuals: see families.py."""

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

from gemma4_families import BF16, FULL, SLIDING, prepare
from recipe import sizes, write


def gemma3n(name):
    """As E2B: the last three layers attend keys and values of others; gates of the first ones are cut
    off. As the text half of a model that also sees, with the keys that publishers wrote; the file has
    keys and values that nothing uses."""
    widths = [48, 48, 48, 56, 52, 52]
    cut = [0.75, 0.5, 0.25, 0.0, 0.0, 0.0]

    def make():
        return Gemma3nForCausalLM(Gemma3nTextConfig(
            **sizes(101, 32, widths, 6, 4, 2, 8), sliding_window=17,
            layer_types=[SLIDING, SLIDING, FULL] * 2, num_kv_shared_layers=3,
            hidden_size_per_layer_input=6, vocab_size_per_layer_input=101, laurel_rank=5,
            activation_sparsity_pattern=cut))

    def published(config):
        ropes = config.pop("rope_parameters")
        config.update(rope_theta=ropes[FULL]["rope_theta"], rope_scaling=None,
                      rope_local_base_freq=ropes[SLIDING]["rope_theta"], query_pre_attn_scalar=8,
                      altup_lr_multiplier=1.0)
        dtype = config.pop("dtype")
        del config["architectures"]
        return {"architectures": ["Gemma3nForConditionalGeneration"], "model_type": "gemma3n",
                "text_config": config, "torch_dtype": dtype, "eos_token_id": [1],
                "vision_config": {"model_type": "gemma3n_vision"}}

    def as_half(model, folder):
        tensors = {name.replace("model.", "model.language_model.", 1): values
                   for name, values in load_file(folder / "model.safetensors").items()}
        for part in ("k_proj", "v_proj", "k_norm"):
            at = "model.language_model.layers.{}.self_attn." + part + ".weight"
            tensors[at.format(4)] = tensors[at.format(1)].clone()
        tensors["model.vision_tower.timm_model.conv_stem.conv.weight"] = torch.ones(2, dtype=BF16)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    write(name, make, BF16, 101, prepare=prepare, change_config=published, store=as_half)


def gemma3n_three(name):
    """Three residuals of which layers compute the second, and which is not scaled; not every token
    has an input of layers; all layers have keys of their own. Keys as Transformers writes them."""
    write(name, lambda: Gemma3nForCausalLM(Gemma3nTextConfig(
        **sizes(101, 32, 24, 3, 4, 1, 8), sliding_window=17, layer_types=[FULL, SLIDING, FULL],
        num_kv_shared_layers=0, hidden_size_per_layer_input=4, vocab_size_per_layer_input=90,
        laurel_rank=3, altup_num_inputs=3, altup_active_idx=1, altup_correct_scale=False,
        activation_sparsity_pattern=[0.0, 0.0, 0.3], final_logit_softcapping=50.0)),
        BF16, 101, prepare=prepare)


RECIPES = {made.__name__: made for made in (gemma3n, gemma3n_three)}

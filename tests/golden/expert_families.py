"""Recipes of families whose experts stand beside a block that every token meets: see families.py."""

import torch
from safetensors.torch import load_file, save_file
from transformers import (Glm4MoeConfig, Glm4MoeForCausalLM, MiniMaxM2Config, MiniMaxM2ForCausalLM,
                          Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3VLMoeConfig,
                          Qwen3VLMoeForConditionalGeneration)

from recipe import older_style, rope, sizes, write

BF16 = torch.bfloat16
NO_TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)


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


def with_guessing_layer(model, folder):
    """A layer behind the others, as publishers store the one that guesses a token ahead."""
    tensors = load_file(folder / "model.safetensors")
    hidden, layer = model.config.hidden_size, f"model.layers.{model.config.num_hidden_layers}."
    tensors[layer + "eh_proj.weight"] = torch.zeros(hidden, 2 * hidden, dtype=BF16)
    for name in ("enorm", "hnorm", "input_layernorm", "shared_head.norm"):
        tensors[f"{layer}{name}.weight"] = torch.ones(hidden, dtype=BF16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def glm4_moe(name):
    """Norms of query and key heads, biases; groups of experts, whose weights are scaled; two shared
    experts; a layer for guessing in the file."""
    write(name, lambda: Glm4MoeForCausalLM(Glm4MoeConfig(
        **sizes(101, 32, 40, 2, 4, 2, 16), **rope(10000.0, partial_rotary_factor=0.5),
        use_qk_norm=True, attention_bias=True, n_routed_experts=8, num_experts_per_tok=2,
        n_group=2, topk_group=1, moe_intermediate_size=16, n_shared_experts=2,
        routed_scaling_factor=2.5)), BF16, 101, store=with_guessing_layer)


def glm4_moe_air(name):
    """Weights are the scores themselves; no layer without experts; keys as publishers write them."""
    write(name, lambda: Glm4MoeForCausalLM(Glm4MoeConfig(
        **sizes(101, 32, 40, 2, 4, 1, 16), **rope(1000000.0, partial_rotary_factor=0.5),
        n_routed_experts=7, num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=False,
        first_k_dense_replace=0, tie_word_embeddings=True)), BF16, 101,
        change_config=glm_older)


def glm_older(config):
    config["partial_rotary_factor"] = config["rope_parameters"].pop("partial_rotary_factor")
    return older_style(config)


def minimax_m2(name):
    """Sigmoid scores with a bias; norms of all query and key heads; keys as publishers write them."""
    def older(config):
        config["rotary_dim"] = int(config["rope_parameters"].pop("partial_rotary_factor") * 16)
        return older_style(config)
    write(name, lambda: MiniMaxM2ForCausalLM(MiniMaxM2Config(
        **sizes(101, 32, 20, 2, 4, 2, 16), **rope(5000000.0, partial_rotary_factor=0.5),
        **NO_TOKENS, num_local_experts=7, num_experts_per_tok=3)), BF16, 101, change_config=older)


def minimax_m2_whole(name):
    """Whole heads are rotated; a tied head."""
    write(name, lambda: MiniMaxM2ForCausalLM(MiniMaxM2Config(
        **sizes(101, 32, 24, 2, 2, 1, 16), **rope(10000.0), **NO_TOKENS, num_local_experts=5,
        num_experts_per_tok=2, tie_word_embeddings=True)), BF16, 101)


def qwen3_vl_moe_model(moe_intermediate, **more):
    text = {**sizes(101, 32, 40, 2, 4, 2, 16), **rope(5000000.0, mrope_section=[4, 2, 2],
                                                      mrope_interleaved=True),
            "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": moe_intermediate,
            **more}
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2,
                  out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[0])
    return Qwen3VLMoeForConditionalGeneration(Qwen3VLMoeConfig(
        text_config=text, vision_config=vision, image_token_id=3, video_token_id=4,
        vision_start_token_id=5, vision_end_token_id=6, attn_implementation="eager",
        experts_implementation="eager"))


def qwen3_vl_moe(name):
    """Text half, as save_pretrained writes it: experts [out, in]; the first layer has none."""
    write(name, lambda: qwen3_vl_moe_model(20, mlp_only_layers=[0]), BF16, 101)


def experts_turned(model, folder):
    """[in, out], as Transformers 4.57 wrote them and publishers have them."""
    tensors = load_file(folder / "model.safetensors")
    for key in tensors:
        if ".experts." in key:
            tensors[key] = tensors[key].transpose(1, 2).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def qwen3_vl_moe_turned(name):
    """As publishers have it, at the size at which one of the two tensors is square."""
    def older(config):
        text = config["text_config"]
        text["rope_scaling"] = text.pop("rope_parameters")
        text["rope_theta"] = text["rope_scaling"].pop("rope_theta")
        text["norm_topk_prob"] = True
        return config
    write(name, lambda: qwen3_vl_moe_model(16), BF16, 101, store=experts_turned,
          change_config=older)


RECIPES = {made.__name__: made for made in
           (qwen2_moe, qwen2_moe_windows, glm4_moe, glm4_moe_air, minimax_m2, minimax_m2_whole,
            qwen3_vl_moe, qwen3_vl_moe_turned)}

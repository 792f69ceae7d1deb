"""Recipes of the families that Annulus serves since 2026: see families.py."""

import torch
from transformers import (Ernie4_5Config, Ernie4_5ForCausalLM, Exaone4Config, Exaone4ForCausalLM,
                          GemmaConfig, GemmaForCausalLM, Glm4Config, Glm4ForCausalLM, GlmConfig,
                          GlmForCausalLM, GraniteConfig, GraniteForCausalLM, GraniteMoeHybridConfig,
                          GraniteMoeHybridForCausalLM, HunYuanDenseV1Config,
                          HunYuanDenseV1ForCausalLM, Ministral3Config, Ministral3ForCausalLM,
                          Mistral3Config, Mistral3ForConditionalGeneration, Olmo3Config,
                          Olmo3ForCausalLM, OlmoeConfig, OlmoeForCausalLM, Phi4MultimodalConfig,
                          Phi4MultimodalForCausalLM, Qwen2_5_VLConfig,
                          Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig,
                          Qwen2VLForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration, SeedOssConfig, SeedOssForCausalLM)

from recipe import loud, older_style, rope, rounded, sizes, write

NO_TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)
BF16 = torch.bfloat16


def qwen3_vl(name):
    """The text half: three positions of a token are the same for texts."""
    text = {**sizes(97, 40, 48, 2, 4, 2, 16),
            **rope(5000000.0, mrope_section=[4, 2, 2], mrope_interleaved=True)}
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2,
                  out_hidden_size=40, num_position_embeddings=4, deepstack_visual_indexes=[0])
    write(name, lambda: Qwen3VLForConditionalGeneration(Qwen3VLConfig(
        text_config=text, vision_config=vision, image_token_id=3, video_token_id=4,
        vision_start_token_id=5, vision_end_token_id=6, attn_implementation="eager",
        tie_word_embeddings=True)), BF16, 97)


VISION2 = dict(depth=1, num_heads=1, in_channels=1, patch_size=2)
TOKENS2 = dict(image_token_id=3, video_token_id=4, vision_start_token_id=5, vision_end_token_id=6,
               attn_implementation="eager")


def qwen2_vl(name):
    text = {**sizes(101, 48, 48, 2, 3, 1), **NO_TOKENS, "rms_norm_eps": 1e-6,
            **rope(1000000.0, mrope_section=[4, 2, 2])}
    vision = dict(VISION2, embed_dim=8, hidden_size=48)
    write(name, lambda: Qwen2VLForConditionalGeneration(Qwen2VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=False, **TOKENS2)), BF16, 101)


def qwen2_5_vl(name):
    """As publishers write it: the text half's keys are those of the whole model."""
    text = {**sizes(101, 48, 48, 2, 3, 1), **NO_TOKENS,
            **rope(1000000.0, mrope_section=[4, 2, 2])}
    vision = dict(VISION2, hidden_size=8, intermediate_size=8, out_hidden_size=48,
                  fullatt_block_indexes=[0])

    def flat(config):
        text = config.pop("text_config")
        parameters = text.pop("rope_parameters")
        text["rope_theta"] = parameters["rope_theta"]
        text["rope_scaling"] = {"type": "mrope", "mrope_section": parameters["mrope_section"]}
        for key in ("layer_types", "dtype", "model_type", "architectures", "tie_word_embeddings"):
            text.pop(key, None)
        return {**text, **{key: value for key, value in config.items() if key != "dtype"},
                "torch_dtype": "bfloat16"}

    write(name, lambda: Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=True, **TOKENS2)), BF16, 101,
        change_config=flat)


def ministral3_config():
    parameters = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=40,
                      beta_fast=32.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0,
                      llama_4_scaling_beta=0.4)
    return Ministral3Config(**sizes(101, 48, 48, 2, 4, 2, 16, max_position_embeddings=2048),
                            **rope(1000000.0, **parameters), **NO_TOKENS)


def ministral3(name):
    """Queries grow with their position: four steps of 40 within the prompt."""
    write(name, lambda: Ministral3ForCausalLM(ministral3_config()), BF16, 101)


def mistral3(name):
    """The same family as the text half of a model that also sees."""
    vision = dict(model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                  num_attention_heads=1, head_dim=8, image_size=14, patch_size=7)
    write(name, lambda: Mistral3ForConditionalGeneration(Mistral3Config(
        text_config=ministral3_config().to_dict(), vision_config=vision, image_token_index=3,
        attn_implementation="eager", tie_word_embeddings=False)), BF16, 101)


def olmo3(name):
    """YaRN in full layers alone; the family's own rule gives the layers' kinds."""
    parameters = {"full_attention": dict(rope_type="yarn", factor=4.0, rope_theta=500000.0,
                                         original_max_position_embeddings=64),
                  "sliding_attention": dict(rope_type="default", rope_theta=500000.0)}

    def older(config):
        full = config.pop("rope_parameters")["full_attention"]
        config["rope_theta"] = full.pop("rope_theta")
        config["rope_scaling"] = full
        config.pop("layer_types")
        return config

    write(name, lambda: Olmo3ForCausalLM(Olmo3Config(
        **sizes(101, 40, 40, 4, 2, 1), rope_parameters=parameters, sliding_window=17,
        **NO_TOKENS)), BF16, 101, change_config=older)


def exaone4(name):
    """Sliding layers have rope, full ones none."""
    write(name, lambda: Exaone4ForCausalLM(Exaone4Config(
        **sizes(101, 40, 40, 4, 2, 1, 20), **rope(1000000.0), sliding_window=17,
        sliding_window_pattern=4, **NO_TOKENS)), BF16, 101)


def exaone4_full(name):
    """Without windows every layer has rope."""
    write(name, lambda: Exaone4ForCausalLM(Exaone4Config(
        **sizes(101, 40, 40, 2, 2, 1, 20), **rope(1000000.0), sliding_window=None,
        layer_types=["full_attention"] * 2, tie_word_embeddings=True, **NO_TOKENS)), BF16, 101)


def seed_oss(name):
    """Biases on query, key and value, none on the output."""
    write(name, lambda: SeedOssForCausalLM(SeedOssConfig(
        **sizes(101, 40, 48, 2, 4, 2, 16), **rope(10000000.0), attention_dropout=0.0,
        residual_dropout=0.0, **NO_TOKENS)), BF16, 101)


MULTIPLIERS = dict(embedding_multiplier=2.0, residual_multiplier=0.22, logits_scaling=4.0)


def granite(name):
    write(name, lambda: GraniteForCausalLM(GraniteConfig(
        **sizes(101, 48, 56, 3, 3, 1), **rope(10000.0), attention_multiplier=0.125, mlp_bias=True,
        attention_bias=True, rms_norm_eps=0.04, **MULTIPLIERS, **NO_TOKENS)), BF16, 101)


def granite4(name):
    """Without state-space layers and experts; the gated block has the shared expert's names."""
    write(name, lambda: GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(
        **sizes(101, 48, 8, 2, 3, 1), **rope(10000.0), attention_multiplier=0.1,
        shared_intermediate_size=56, num_local_experts=0, num_experts_per_tok=0,
        layer_types=["full_attention"] * 2, position_embedding_type="rope", mamba_n_heads=4,
        **MULTIPLIERS, **NO_TOKENS)), BF16, 101,
        change_config=lambda c: {**c, "layer_types": ["attention"] * 2})


def gemma(name):
    def prepare(model):
        loud(model, 4.0)
        rounded(model, torch.float32)
    write(name, lambda: GemmaForCausalLM(GemmaConfig(
        **sizes(101, 40, 48, 2, 2, 1, 24), **rope(10000.0), **NO_TOKENS)), torch.float32, 101,
        prepare=prepare)


def olmoe(name):
    write(name, lambda: OlmoeForCausalLM(OlmoeConfig(
        **sizes(101, 32, 20, 2, 4, 2), **rope(10000.0), num_experts=7, num_experts_per_tok=3,
        **NO_TOKENS)), BF16, 101)


def hunyuan(name):
    """Norms of queries and keys come after rope, whose theta grows by a constant."""
    def prepare(model):
        loud(model, 3.0)
        rounded(model, BF16)
    write(name, lambda: HunYuanDenseV1ForCausalLM(HunYuanDenseV1Config(
        **sizes(101, 40, 48, 2, 4, 2, 24), **rope(10000.0, rope_type="dynamic", factor=1.0,
                                                  alpha=50.0), tie_word_embeddings=True,
        **NO_TOKENS)), BF16, 101, prepare=prepare)


def ernie4_5(name):
    """Rope turns neighbours; a bias everywhere."""
    write(name, lambda: Ernie4_5ForCausalLM(Ernie4_5Config(
        **sizes(101, 40, 48, 2, 4, 2, 24), **rope(500000.0), use_bias=True, **NO_TOKENS)),
        BF16, 101)


def glm4(name):
    """Rope turns neighbours in the first half of each head; norms before and after blocks."""
    write(name, lambda: Glm4ForCausalLM(Glm4Config(
        **sizes(101, 40, 48, 2, 4, 2, 24), **rope(10000.0, partial_rotary_factor=0.5),
        attention_bias=True, **NO_TOKENS)), BF16, 101)


def glm(name):
    """The family before, with the keys of its files."""
    def older(config):
        config = older_style(config)
        config["partial_rotary_factor"] = 0.5
        return config
    write(name, lambda: GlmForCausalLM(GlmConfig(
        **sizes(101, 40, 48, 2, 4, 2, 24), **rope(10000.0, partial_rotary_factor=0.5),
        **NO_TOKENS)), BF16, 101, change_config=older)


def phi4_multimodal(name):
    """Text half; what belongs to images and audio is made empty, because it is large."""
    parameters = dict(rope_type="longrope", partial_rotary_factor=0.75,
                      long_factor=[1.0, 1.5, 2.5, 4.0, 6.0, 9.0],
                      short_factor=[1.0, 1.0, 1.1, 1.3, 1.2, 1.6])
    vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=1,
                  crop_size=28, image_token_id=98)
    audio = dict(hidden_size=8, intermediate_size=8, num_blocks=1, num_attention_heads=1,
                 ext_pw_out_channel=8, depthwise_separable_out_channel=8, nemo_conv_channels=8,
                 input_size=16, audio_token_id=97)

    def make():
        return Phi4MultimodalForCausalLM(Phi4MultimodalConfig(
            **sizes(96, 48, 40, 2, 3, 1, max_position_embeddings=400), **rope(10000.0, **parameters),
            original_max_position_embeddings=100, vision_config=vision, audio_config=audio,
            tie_word_embeddings=True, **NO_TOKENS))
    write(name, make, BF16, 96)


RECIPES = {made.__name__: made for made in
           (qwen3_vl, qwen2_vl, qwen2_5_vl, ministral3, mistral3, olmo3, exaone4, exaone4_full,
            seed_oss, granite, granite4, gemma, olmoe, hunyuan, ernie4_5, glm4, glm,
            phi4_multimodal)}

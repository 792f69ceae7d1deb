"""Random small configurations of every family, for random_configurations.py: sizes that fit no tile,
layers of every kind, rope of every kind that the family has, and what else its config.json may say.

A family is a function of a `random.Random` that returns the class of the model and its configuration."""

import torch
import transformers

SLIDING, FULL = "sliding_attention", "full_attention"
NO_TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)
CONTEXT = 2048


def sizes(rng, own_head_dim=True, even=2, most_layers=4, **rest):
    """What all have. `own_head_dim`: heads need not fill the hidden size; `even`: what divides a head's size."""
    kv_heads = rng.randint(1, 3)
    heads = kv_heads * rng.randint(1, 3)
    head_dim = even * rng.randint(max(1, 4 // even), 40 // even)
    given = dict(vocab_size=rng.randint(40, 160), hidden_size=heads * head_dim,
                 intermediate_size=rng.randint(3, 90), num_hidden_layers=rng.randint(1, most_layers),
                 num_attention_heads=heads, num_key_value_heads=kv_heads,
                 max_position_embeddings=CONTEXT, rms_norm_eps=rng.choice([1e-6, 1e-5, 1e-3]),
                 tie_word_embeddings=rng.random() < 0.3, **NO_TOKENS)
    if own_head_dim:
        given["head_dim"] = head_dim
        # Transformers wants it a multiple of the heads all the same.
        given["hidden_size"] = heads * rng.randint(max(1, 10 // heads), max(1, 80 // heads))
    return {**given, **rest}


def scaled(rng, kinds, pairs=0):
    """Rope settings of one of the kinds."""
    kind = rng.choice(kinds)
    made = {"rope_type": kind, "rope_theta": rng.choice([1e4, 1e5, 5e5, 1e6])}
    if kind == "linear":
        made["factor"] = rng.choice([1.0, 2.0, 8.0])
    if kind == "llama3":
        made.update(factor=rng.choice([2.0, 8.0, 32.0]), low_freq_factor=1.0,
                    high_freq_factor=rng.choice([2.0, 4.0]),
                    original_max_position_embeddings=rng.choice([32, 64, 512]))
    if kind == "yarn":
        made.update(factor=rng.choice([2.0, 4.0, 16.0]),
                    original_max_position_embeddings=rng.choice([32, 128]))
        if rng.random() < 0.3:
            made.update(beta_fast=rng.choice([8.0, 32.0]), beta_slow=rng.choice([1.0, 2.0]))
        if rng.random() < 0.3:
            made["attention_factor"] = rng.choice([0.8, 1.3])
        elif rng.random() < 0.3:
            made.update(mscale=rng.choice([1.0, 0.7]), mscale_all_dim=rng.choice([1.0, 0.5]))
        if rng.random() < 0.3:
            made["truncate"] = rng.random() < 0.5
    if kind == "longrope":
        made.update(long_factor=[round(rng.uniform(1, 8), 2) for _ in range(pairs)],
                    short_factor=[round(rng.uniform(1, 2), 2) for _ in range(pairs)])
    return made


USUAL = ["default", "default", "linear", "llama3", "yarn"]


def rope(rng, kinds=USUAL, **rest):
    return {"rope_parameters": {**scaled(rng, kinds), **rest}}


def window(rng):
    """At least 2: of a window of 1 the cache of Transformers 5.24 keeps more."""
    return rng.choice([2, 3, 7, 16, 17, 33, 64, 500])


def kinds_of(rng, layers):
    return [rng.choice([SLIDING, FULL]) for _ in range(layers)]


def some(rng, **values):
    """Each of these or nothing, which means the family's default."""
    return {key: value for key, value in values.items() if rng.random() < 0.5}


def llama(rng):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(
        **sizes(rng), **rope(rng), attention_bias=rng.random() < 0.3, mlp_bias=rng.random() < 0.3)


def mistral(rng):
    return transformers.MistralForCausalLM, transformers.MistralConfig(
        **sizes(rng), **rope(rng), sliding_window=rng.choice([None, window(rng)]))


def ministral3(rng):
    parameters = scaled(rng, ["yarn"])
    parameters["llama_4_scaling_beta"] = rng.choice([0.1, 0.4])
    return transformers.Ministral3ForCausalLM, transformers.Ministral3Config(
        **sizes(rng), rope_parameters=parameters, sliding_window=rng.choice([None, window(rng)]))


def qwen2(rng):
    given = sizes(rng, own_head_dim=False)
    slides = dict(use_sliding_window=True, sliding_window=window(rng),
                  max_window_layers=rng.randint(0, given["num_hidden_layers"]))
    return transformers.Qwen2ForCausalLM, transformers.Qwen2Config(
        **given, **rope(rng), **(slides if rng.random() < 0.5 else {}))


def qwen3(rng):
    given = sizes(rng)
    slides = dict(use_sliding_window=True, sliding_window=window(rng),
                  max_window_layers=rng.randint(0, given["num_hidden_layers"]))
    return transformers.Qwen3ForCausalLM, transformers.Qwen3Config(
        **given, **rope(rng), attention_bias=rng.random() < 0.3,
        **(slides if rng.random() < 0.5 else {}))


def phi3(rng):
    given = sizes(rng, own_head_dim=False, even=4)
    head_dim = given["hidden_size"] // given["num_attention_heads"]
    part = rng.choice([1.0, 0.5])
    parameters = {**scaled(rng, ["default", "longrope"], int(head_dim * part) // 2),
                  "partial_rotary_factor": part}
    return transformers.Phi3ForCausalLM, transformers.Phi3Config(
        **given, rope_parameters=parameters, sliding_window=rng.choice([None, window(rng)]),
        original_max_position_embeddings=rng.choice([16, 1024]))


def activation(rng):
    return rng.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "gelu"])


def gemma(rng):
    return transformers.GemmaForCausalLM, transformers.GemmaConfig(
        **{**sizes(rng), "tie_word_embeddings": True}, **rope(rng, ["default", "linear"]),
        **some(rng, attention_bias=True))


def gemma2(rng):
    given = {**sizes(rng), "tie_word_embeddings": True}
    return transformers.Gemma2ForCausalLM, transformers.Gemma2Config(
        **given, **rope(rng, ["default"]), sliding_window=window(rng),
        query_pre_attn_scalar=rng.choice([4, 20, 60]),
        attn_logit_softcapping=rng.choice([None, 2.0, 30.0]),
        final_logit_softcapping=rng.choice([None, 8.0]),
        layer_types=kinds_of(rng, given["num_hidden_layers"]))


def by_kind(rng, full):
    return {FULL: scaled(rng, full), SLIDING: scaled(rng, ["default"])}


def gemma3(rng):
    given = {**sizes(rng), "tie_word_embeddings": True}
    return transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(
        **given, rope_parameters=by_kind(rng, ["default", "linear"]), sliding_window=window(rng),
        query_pre_attn_scalar=rng.choice([4, 20, 60]),
        layer_types=kinds_of(rng, given["num_hidden_layers"]),
        **some(rng, final_logit_softcapping=8.0))


def sharing(kinds):
    """Numbers of layers at the end that may attend the keys of others."""
    return [count for count in range(1, len(kinds))
            if set(kinds[len(kinds) - count:]) <= set(kinds[:len(kinds) - count])]


def gemma3n(rng):
    given = {**sizes(rng, most_layers=6), "tie_word_embeddings": rng.random() < 0.8}
    layers = given["num_hidden_layers"]
    kinds = kinds_of(rng, layers)
    shared = sharing(kinds)
    streams = rng.choice([2, 3, 4, 4, 4, 5])
    if rng.random() < 0.5:
        given["intermediate_size"] = [rng.randint(3, 90) for _ in range(layers)]
    return transformers.Gemma3nForCausalLM, transformers.Gemma3nTextConfig(
        **given, num_kv_shared_layers=rng.choice(shared) if shared and rng.random() < 0.6 else 0,
        sliding_window=window(rng), layer_types=kinds, hidden_size_per_layer_input=rng.choice([3, 8]),
        vocab_size_per_layer_input=max(1, given["vocab_size"] + rng.choice([-9, 0, 5])),
        laurel_rank=rng.randint(1, 12), altup_num_inputs=streams, altup_correct_scale=rng.random() < 0.8,
        altup_active_idx=rng.choice([0, 0, streams - 1]),
        activation_sparsity_pattern=[rng.choice([0.0, 0.3, 0.5, 0.9]) for _ in range(layers)],
        final_logit_softcapping=rng.choice([8.0, 30.0]), attention_bias=rng.random() < 0.2,
        rope_parameters={FULL: scaled(rng, ["default", "linear"]), SLIDING: scaled(rng, ["default"])})


def gemma4(rng):
    given = {**sizes(rng, even=2, most_layers=6), "tie_word_embeddings": rng.random() < 0.8}
    layers = given["num_hidden_layers"]
    kinds = kinds_of(rng, layers - 1) + [FULL]
    head_dim = 4 * rng.randint(1, 10)
    full = {"rope_type": "proportional", "rope_theta": rng.choice([1e4, 1e6]),
            "partial_rotary_factor": rng.choice([0.25, 0.5, 1.0])}
    more = {}
    shared = sharing(kinds)
    if shared and rng.random() < 0.5:
        more.update(num_kv_shared_layers=rng.choice(shared), use_double_wide_mlp=rng.random() < 0.5)
    else:
        more["num_kv_shared_layers"] = 0
    if rng.random() < 0.4:
        count = rng.randint(2, 7)
        more.update(enable_moe_block=True, num_experts=count, top_k_experts=rng.randint(1, min(count, 3)),
                    moe_intermediate_size=rng.randint(2, 30))
        more["use_double_wide_mlp"] = False
    if rng.random() < 0.5:
        more.update(attention_k_eq_v=True, num_global_key_value_heads=given["num_key_value_heads"])
    # Transformers 5.24 cannot compute layers that share keys without inputs of layers.
    inputs = rng.choice([3, 8] if more["num_kv_shared_layers"] else [0, 0, 3, 8])
    return transformers.Gemma4ForCausalLM, transformers.Gemma4TextConfig(
        **given, **more, global_head_dim=head_dim, sliding_window=window(rng), layer_types=kinds,
        hidden_size_per_layer_input=inputs, vocab_size_per_layer_input=given["vocab_size"] + rng.choice([0, 5]),
        final_logit_softcapping=rng.choice([None, 8.0]),
        rope_parameters={FULL: full, SLIDING: scaled(rng, ["default"])})


def smollm3(rng):
    given = sizes(rng, own_head_dim=False)
    return transformers.SmolLM3ForCausalLM, transformers.SmolLM3Config(
        **given, **rope(rng), attention_bias=rng.random() < 0.3, mlp_bias=rng.random() < 0.3,
        no_rope_layers=[rng.randint(0, 1) for _ in range(given["num_hidden_layers"])])


def olmo2(rng):
    return transformers.Olmo2ForCausalLM, transformers.Olmo2Config(
        **sizes(rng, own_head_dim=False), **rope(rng), attention_bias=rng.random() < 0.3)


def olmo3(rng):
    given = sizes(rng, own_head_dim=False)
    full = scaled(rng, ["default", "yarn"])
    full.pop("truncate", None)  # Transformers 5.24 reads it beside the settings of each kind of layers
    return transformers.Olmo3ForCausalLM, transformers.Olmo3Config(
        **given, rope_parameters={FULL: full, SLIDING: {"rope_type": "default",
                                                        "rope_theta": full["rope_theta"]}},
        sliding_window=window(rng), layer_types=kinds_of(rng, given["num_hidden_layers"]))


def exaone4(rng):
    given = sizes(rng)
    slides = rng.random() < 0.6
    return transformers.Exaone4ForCausalLM, transformers.Exaone4Config(
        **given, **rope(rng), sliding_window=window(rng) if slides else None,
        layer_types=kinds_of(rng, given["num_hidden_layers"]) if slides
        else [FULL] * given["num_hidden_layers"])


def seed_oss(rng):
    return transformers.SeedOssForCausalLM, transformers.SeedOssConfig(
        **sizes(rng), **rope(rng), attention_dropout=0.0, residual_dropout=0.0,
        attention_bias=rng.random() < 0.7, attention_out_bias=rng.random() < 0.3,
        mlp_bias=rng.random() < 0.3)


def multipliers(rng):
    return some(rng, embedding_multiplier=2.0, residual_multiplier=0.22, logits_scaling=4.0,
                attention_multiplier=0.125)


def granite(rng):
    return transformers.GraniteForCausalLM, transformers.GraniteConfig(
        **sizes(rng, own_head_dim=False), **rope(rng), **multipliers(rng),
        attention_bias=rng.random() < 0.3, mlp_bias=rng.random() < 0.3)


def granite4(rng):
    given = sizes(rng, own_head_dim=False)
    return transformers.GraniteMoeHybridForCausalLM, transformers.GraniteMoeHybridConfig(
        **given, **rope(rng, ["default"]), **multipliers(rng), num_local_experts=0, num_experts_per_tok=0,
        shared_intermediate_size=rng.randint(3, 60),
        layer_types=["full_attention"] * given["num_hidden_layers"],
        position_embedding_type=rng.choice(["rope", None]), mamba_n_heads=1,
        mamba_d_head=given["hidden_size"] * 2)


def hunyuan(rng):
    parameters = scaled(rng, ["default"])
    if rng.random() < 0.5:
        parameters.update(rope_type="dynamic", alpha=rng.choice([1.0, 50.0, 1000.0]), factor=1.0)
    return transformers.HunYuanDenseV1ForCausalLM, transformers.HunYuanDenseV1Config(
        **sizes(rng, even=4), rope_parameters=parameters, attention_bias=rng.random() < 0.3)


def ernie4_5(rng):
    return transformers.Ernie4_5ForCausalLM, transformers.Ernie4_5Config(
        **sizes(rng), **rope(rng, ["default"]), use_bias=rng.random() < 0.4)


def glm(rng):
    return transformers.GlmForCausalLM, transformers.GlmConfig(
        **sizes(rng, even=4), **rope(rng, ["default"], partial_rotary_factor=rng.choice([0.5, 1.0])),
        attention_bias=rng.random() < 0.5)


def glm4(rng):
    return transformers.Glm4ForCausalLM, transformers.Glm4Config(
        **sizes(rng, even=4), **rope(rng, ["default"], partial_rotary_factor=rng.choice([0.5, 1.0])),
        attention_bias=rng.random() < 0.5)


def chosen(rng, count_key, least=2, **rest):
    count = rng.randint(least, 9)
    return {count_key: count, "num_experts_per_tok": rng.randint(1, min(4, count)), **rest}


def mixtral(rng):
    return transformers.MixtralForCausalLM, transformers.MixtralConfig(
        **sizes(rng), **rope(rng, ["default"]), **chosen(rng, "num_local_experts"),
        sliding_window=rng.choice([None, window(rng)]))


def olmoe(rng):
    return transformers.OlmoeForCausalLM, transformers.OlmoeConfig(
        **sizes(rng, own_head_dim=False), **rope(rng, ["default"]), **chosen(rng, "num_experts"),
        norm_topk_prob=rng.random() < 0.5, attention_bias=rng.random() < 0.3)


def sparse(rng, layers):
    return some(rng, decoder_sparse_step=rng.randint(1, 3),
                mlp_only_layers=[i for i in range(layers) if rng.random() < 0.3])


def qwen2_moe(rng):
    given = sizes(rng, own_head_dim=False)
    slides = dict(use_sliding_window=True, sliding_window=window(rng),
                  max_window_layers=rng.randint(0, given["num_hidden_layers"]))
    return transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig(
        **given, **rope(rng, ["default"]), **chosen(rng, "num_experts"),
        **sparse(rng, given["num_hidden_layers"]), moe_intermediate_size=rng.randint(3, 30),
        shared_expert_intermediate_size=rng.randint(3, 30), qkv_bias=rng.random() < 0.7,
        norm_topk_prob=rng.random() < 0.5, **(slides if rng.random() < 0.4 else {}))


def qwen3_moe(rng):
    given = sizes(rng)
    return transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig(
        **given, **rope(rng), **chosen(rng, "num_experts"), **sparse(rng, given["num_hidden_layers"]),
        moe_intermediate_size=rng.randint(3, 30), norm_topk_prob=rng.random() < 0.5,
        attention_bias=rng.random() < 0.3)


def qwen3_vl_moe(rng):
    """Text half; Transformers writes its experts [out, in]."""
    given = sizes(rng, even=8)
    tied = given.pop("tie_word_embeddings")
    text = {**given, **rope(rng, ["default"], mrope_section=[given["head_dim"] // 2, 0, 0], mrope_interleaved=True),
            **chosen(rng, "num_experts"), **sparse(rng, given["num_hidden_layers"]),
            "moe_intermediate_size": rng.choice([rng.randint(3, 30), given["hidden_size"] // 2, given["hidden_size"]]),
            "attention_bias": rng.random() < 0.3}
    vision = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, patch_size=2,
                  out_hidden_size=given["hidden_size"], num_position_embeddings=4, deepstack_visual_indexes=[0])
    return transformers.Qwen3VLMoeForConditionalGeneration, transformers.Qwen3VLMoeConfig(
        text_config=text, vision_config=vision, image_token_id=3, video_token_id=4, vision_start_token_id=5,
        vision_end_token_id=6, tie_word_embeddings=tied, attn_implementation="eager", experts_implementation="eager")


def glm4_moe(rng):
    given = sizes(rng, even=4)
    groups, size = rng.choice([(1, rng.randint(2, 8)), (2, 3), (3, 2), (2, 4)])
    kept = rng.randint(1, groups)
    return transformers.Glm4MoeForCausalLM, transformers.Glm4MoeConfig(
        **given, **rope(rng, ["default"], partial_rotary_factor=rng.choice([0.5, 1.0])),
        n_routed_experts=groups * size, n_group=groups, topk_group=kept,
        num_experts_per_tok=rng.randint(1, min(4, kept * size)), moe_intermediate_size=rng.randint(3, 30),
        n_shared_experts=rng.randint(1, 2), first_k_dense_replace=rng.randint(0, given["num_hidden_layers"]),
        norm_topk_prob=rng.random() < 0.5, routed_scaling_factor=rng.choice([1.0, 2.5]),
        use_qk_norm=rng.random() < 0.5, attention_bias=rng.random() < 0.3)


def minimax_m2(rng):
    return transformers.MiniMaxM2ForCausalLM, transformers.MiniMaxM2Config(
        **sizes(rng, even=4), **rope(rng, ["default"], partial_rotary_factor=rng.choice([0.5, 1.0])),
        **chosen(rng, "num_local_experts"))


def gpt_oss(rng):
    given = sizes(rng)
    return transformers.GptOssForCausalLM, transformers.GptOssConfig(
        **given, rope_parameters=scaled(rng, ["yarn", "default"]), **chosen(rng, "num_local_experts"),
        sliding_window=window(rng), layer_types=kinds_of(rng, given["num_hidden_layers"]))


def centred(rng, even=2, **rest):
    """Sizes of families that have no rms_norm_eps and no head_dim."""
    given = {**sizes(rng, own_head_dim=False, even=even), **rest}
    epsilon = given.pop("rms_norm_eps")
    return given, epsilon


def cohere(rng):
    given, epsilon = centred(rng)
    return transformers.CohereForCausalLM, transformers.CohereConfig(
        **given, **rope(rng), layer_norm_eps=epsilon, attention_bias=rng.random() < 0.3,
        use_qk_norm=rng.random() < 0.5, **some(rng, logit_scale=rng.choice([0.25, 1.0, 2.0])))


def cohere2(rng):
    given, epsilon = centred(rng)
    return transformers.Cohere2ForCausalLM, transformers.Cohere2Config(
        **given, **rope(rng), layer_norm_eps=epsilon, attention_bias=rng.random() < 0.3,
        sliding_window=window(rng), layer_types=kinds_of(rng, given["num_hidden_layers"]),
        **some(rng, logit_scale=rng.choice([0.25, 1.0, 2.0])))


def stablelm(rng):
    given, epsilon = centred(rng, even=8)
    return transformers.StableLmForCausalLM, transformers.StableLmConfig(
        **given, **rope(rng, ["default"], partial_rotary_factor=rng.choice([0.25, 0.5, 1.0])),
        layer_norm_eps=epsilon, use_qkv_bias=rng.random() < 0.5, qk_layernorm=rng.random() < 0.4,
        use_parallel_residual=rng.random() < 0.4)


def starcoder2(rng):
    given, epsilon = centred(rng)
    return transformers.Starcoder2ForCausalLM, transformers.Starcoder2Config(
        **given, **rope(rng), norm_epsilon=epsilon, use_bias=rng.random() < 0.6,
        sliding_window=rng.choice([None, window(rng)]))


FAMILIES = {family.__name__: family for family in (
    llama, mistral, ministral3, qwen2, qwen3, phi3, gemma, gemma2, gemma3, gemma3n, gemma4, smollm3, olmo2, olmo3,
    exaone4, seed_oss, granite, granite4, hunyuan, ernie4_5, glm, glm4, mixtral, olmoe, qwen2_moe, qwen3_moe,
    qwen3_vl_moe, glm4_moe, minimax_m2, gpt_oss, cohere, cohere2, stablelm, starcoder2)}
# Their embeddings are scaled by the float32 root of hidden_size in Transformers, whatever is stored.
FLOAT32_ONLY = ("gemma", "gemma2")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

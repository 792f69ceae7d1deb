"""Recipes of the families after Llama and Mistral: tiny, and such that every difference of a family
moves the logits visibly."""

import torch
from safetensors.torch import load_file, save_file
from transformers import (Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForCausalLM,
                          Gemma3ForConditionalGeneration, Gemma3TextConfig,
                          GptOssConfig, GptOssForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MixtralConfig, MixtralForCausalLM, Olmo2Config, Olmo2ForCausalLM,
                          Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config,
                          SmolLM3ForCausalLM)

import recipe
from recipe import HERE, older_style, rope, rounded, sizes, write

NO_TOKENS = dict(bos_token_id=1, eos_token_id=2, pad_token_id=None)


def qwen2(name):
    write(name, lambda: Qwen2ForCausalLM(Qwen2Config(
        **sizes(101, 36, 48, 3, 3, 1), **rope(1000000.0), tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=17, max_window_layers=1)),
        torch.bfloat16, 101, change_config=lambda c: without_layer_types(older_style(c)))


def without_layer_types(config):
    """As older files are: the family's own rule gives the layers' kinds."""
    config.pop("layer_types")
    return config


def qwen3(name):
    write(name, lambda: Qwen3ForCausalLM(Qwen3Config(
        **sizes(97, 40, 48, 2, 4, 2, 24), **rope(1000000.0))), torch.bfloat16, 97)


def phi3(name):
    write(name, lambda: Phi3ForCausalLM(Phi3Config(
        **sizes(96, 48, 56, 2, 3, 1), **rope(10000.0), sliding_window=31, **NO_TOKENS)),
        torch.float16, 96)


def frozen(model, length):
    """A sequence keeps the frequencies that Transformers has while it reads the prompt, of `length`
    tokens. (By itself it goes on to change them as the answer grows.)"""
    rotary = model.model.rotary_emb
    rotary(torch.zeros(1), torch.arange(length)[None])
    rotary.rope_type = "default"  # no update in forward
    return model


def beside(name, suffix, make, length, vocabulary):
    """A second prompt, of `length` tokens, through the weights of the folder."""
    stored = {key: value.float()
              for key, value in load_file(HERE / name / "model.safetensors").items()}
    seed, model, prompt, ids, gap = recipe.candidate(
        lambda: frozen(make(), length), lambda model: model.load_state_dict(stored, strict=False),
        vocabulary, length)
    logits = recipe.logits_of(model, prompt)
    free = make().float().eval()
    free.load_state_dict(stored, strict=False)
    assert torch.equal(recipe.logits_of(free, prompt), logits), "the prompt is as Transformers has it"
    error = recipe.largest_error(model, prompt, logits)
    recipe.write_expected(HERE / name, suffix, seed, vocabulary, prompt, ids, gap, logits, error)


SHORT_PROMPT = 80  # its answer goes on past the original context of 100


def phi3_longrope(name):
    """Partial rotary; long factors for the usual prompt, short ones for a second, short prompt."""
    long_factor = [1.0, 1.5, 2.5, 4.0, 6.0, 9.0]
    short_factor = [1.0, 1.0, 1.1, 1.3, 1.2, 1.6]
    parameters = dict(rope_type="longrope", long_factor=long_factor, short_factor=short_factor,
                      partial_rotary_factor=0.75)
    make = lambda: Phi3ForCausalLM(Phi3Config(
        **sizes(96, 48, 40, 2, 3, 3, max_position_embeddings=400), **rope(10000.0, **parameters),
        original_max_position_embeddings=100, **NO_TOKENS))
    write(name, make, torch.bfloat16, 96)
    beside(name, "_short", make, SHORT_PROMPT, 96)


def llama_dynamic(name):
    """Dynamic NTK: theta stretched for the usual prompt, the original one for a second, short one."""
    make = lambda: LlamaForCausalLM(LlamaConfig(
        **sizes(96, 32, 40, 2, 2, 1, 16, max_position_embeddings=100),
        **rope(10000.0, rope_type="dynamic", factor=2.0)))
    write(name, lambda: frozen(make(), recipe.PROMPT_TOKENS), torch.bfloat16, 96)
    beside(name, "_short", make, SHORT_PROMPT, 96)


def gemma2(name):
    """Float32, so that embeddings are scaled by the float32 root of hidden_size."""
    write(name, lambda: Gemma2ForCausalLM(Gemma2Config(
        **sizes(101, 40, 48, 4, 2, 1, 16), **rope(10000.0), sliding_window=17,
        query_pre_attn_scalar=20, attn_logit_softcapping=2.0, final_logit_softcapping=8.0,
        **NO_TOKENS)), torch.float32, 101, change_config=without_layer_types)


def gemma3(name):
    """Bfloat16: the scale of the embeddings is rounded to it, as where the model runs in it."""
    def prepare(model):
        rounded(model, torch.bfloat16)
        scale = model.model.embed_tokens.embed_scale
        scale.copy_(scale.to(torch.bfloat16).float())
    parameters = {"full_attention": dict(rope_type="linear", factor=4.0, rope_theta=1000000.0),
                  "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}
    write(name, lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        **sizes(101, 40, 40, 6, 2, 1, 16), rope_parameters=parameters, sliding_window=17,
        sliding_window_pattern=3, query_pre_attn_scalar=24, **NO_TOKENS)),
        torch.bfloat16, 101, prepare=prepare)


def gemma3_vision(name):
    """A model that also sees, as publishers write it: the decoder's keys are in text_config, its
    tensors begin with language_model."""
    def make():
        parameters = {"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1000000.0),
                      "sliding_attention": dict(rope_type="default", rope_theta=10000.0)}
        text = Gemma3TextConfig(
            **sizes(101, 40, 40, 6, 8, 4, 8, max_position_embeddings=131072),
            rope_parameters=parameters, sliding_window=17, query_pre_attn_scalar=12)
        vision = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1,
                      num_attention_heads=1, image_size=14, patch_size=7)
        return Gemma3ForConditionalGeneration(Gemma3Config(
            text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=1,
            attn_implementation="eager"))

    def prepare(model):
        rounded(model, torch.bfloat16)
        scale = model.model.language_model.embed_tokens.embed_scale
        scale.copy_(scale.to(torch.bfloat16).float())

    def sparse(config):
        text = {key: value for key, value in config["text_config"].items() if key in (
            "head_dim", "hidden_size", "intermediate_size", "model_type", "num_hidden_layers",
            "query_pre_attn_scalar", "sliding_window", "vocab_size")}
        text["rope_scaling"] = {"factor": 8.0, "rope_type": "linear"}
        return {"architectures": config["architectures"], "eos_token_id": [1, 100],
                "model_type": config["model_type"], "text_config": text,
                "torch_dtype": "bfloat16", "vision_config": config["vision_config"]}

    write(name, make, torch.bfloat16, 101, prepare=prepare, change_config=sparse)


def smollm3(name):
    write(name, lambda: SmolLM3ForCausalLM(SmolLM3Config(
        **sizes(101, 48, 48, 3, 3, 1), **rope(2000000.0), no_rope_layers=[1, 0, 1], **NO_TOKENS)),
        torch.bfloat16, 101)


def olmo2(name):
    write(name, lambda: Olmo2ForCausalLM(Olmo2Config(
        **sizes(101, 48, 48, 3, 3, 3), **rope(500000.0), **NO_TOKENS)), torch.bfloat16, 101)


def mixtral(name):
    write(name, lambda: MixtralForCausalLM(MixtralConfig(
        **sizes(101, 32, 24, 2, 4, 2, 16), **rope(1000000.0), num_local_experts=5,
        num_experts_per_tok=2)), torch.bfloat16, 101)


def qwen3_moe(name):
    """Weights of the chosen experts do not add up to one; the middle layer has no experts."""
    write(name, lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(
        **sizes(101, 32, 40, 3, 4, 2, 16), **rope(1000000.0), num_experts=7,
        num_experts_per_tok=3, moe_intermediate_size=20, norm_topk_prob=False,
        mlp_only_layers=[1])), torch.bfloat16, 101)


FP4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def mxfp4_parts(weight):
    """[expert, in, out] as blocks [expert, out, in / 32, 16] and scales [expert, out, in / 32]:
    each block of 32 inputs shares a power of two; the low half of a byte is the earlier value."""
    values = weight.transpose(1, 2).reshape(weight.shape[0], weight.shape[2], -1, 32)
    exponent = torch.ceil(torch.log2(values.abs().amax(-1) / 6)).clamp(-127, 127)
    scaled = values / torch.exp2(exponent)[..., None]
    codes = (scaled[..., None] - FP4).abs().argmin(-1).to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponent + 127).to(torch.uint8)


def mxfp4_values(blocks, scales):
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2).long()
    values = FP4[codes] * torch.exp2(scales.float() - 127)[..., None]
    return values.flatten(-2).transpose(1, 2)


EXPERTS = ("gate_up_proj", "down_proj")


def round_experts(model):
    rounded(model, torch.bfloat16)
    for layer in model.model.layers:
        for part in EXPERTS:
            weight = getattr(layer.mlp.experts, part)
            weight.data.copy_(mxfp4_values(*mxfp4_parts(weight.data)))


def store_mxfp4(model, folder):
    tensors = load_file(folder / "model.safetensors")
    for key in [key for key in tensors if key.endswith(EXPERTS)]:
        blocks, scales = mxfp4_parts(tensors.pop(key).float())
        tensors[key + "_blocks"], tensors[key + "_scales"] = blocks.contiguous(), scales.contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def gpt_oss_model():
    yarn = dict(rope_type="yarn", factor=8.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                original_max_position_embeddings=64)
    return GptOssForCausalLM(GptOssConfig(
        **sizes(101, 32, 32, 2, 4, 2, 16), **rope(150000.0, **yarn), sliding_window=17,
        num_local_experts=4, num_experts_per_tok=2, swiglu_limit=1.0, **NO_TOKENS))


def gpt_oss(name):
    def quantized(config):
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
        return config
    write(name, gpt_oss_model, torch.bfloat16, 101, prepare=round_experts, store=store_mxfp4,
          change_config=quantized)


def gpt_oss_bf16(name):
    write(name, gpt_oss_model, torch.bfloat16, 101)


def yarn(name):
    """YaRN with rounded correction borders and the usual attention factor."""
    parameters = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
    write(name, lambda: Qwen2ForCausalLM(Qwen2Config(
        **sizes(96, 32, 40, 2, 2, 1), **rope(10000.0, **parameters))), torch.bfloat16, 96)


FP8_BLOCK = (16, 32)


def fp8_scales(weight):
    rows, cols = FP8_BLOCK
    blocks = [[weight[r:r + rows, c:c + cols].abs().max() / 448
               for c in range(0, weight.shape[1], cols)] for r in range(0, weight.shape[0], rows)]
    return torch.tensor(blocks)


def widened(scales, shape):
    rows, cols = FP8_BLOCK
    return scales.repeat_interleave(rows, 0).repeat_interleave(cols, 1)[:shape[0], :shape[1]]


def is_quantized(name):
    return name.endswith("_proj.weight")


def llama_fp8(name):
    """float8_e4m3 in blocks that share a float32 scale, as DeepSeek and Qwen publish."""
    kept = {}

    def prepare(model):
        rounded(model, torch.bfloat16)
        kept.clear()
        for key, parameter in model.named_parameters():
            if is_quantized(key):
                scales = fp8_scales(parameter.data)
                codes = (parameter.data / widened(scales, parameter.shape)).to(torch.float8_e4m3fn)
                kept[key], kept[key + "_scale_inv"] = codes, scales
                parameter.data.copy_(codes.float() * widened(scales, parameter.shape))

    def store(model, folder):
        tensors = load_file(folder / "model.safetensors")
        tensors.update({key: value.contiguous() for key, value in kept.items()})
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def quantized(config):
        config["quantization_config"] = {"quant_method": "fp8", "fmt": "e4m3",
                                         "activation_scheme": "dynamic",
                                         "weight_block_size": list(FP8_BLOCK)}
        return config

    write(name, lambda: LlamaForCausalLM(LlamaConfig(
        **sizes(101, 48, 72, 2, 3, 1), **rope(10000.0))), torch.bfloat16, 101,
        prepare=prepare, store=store, change_config=quantized)


RECIPES = {made.__name__: made for made in
           (qwen2, qwen3, phi3, phi3_longrope, llama_dynamic, yarn, gemma2, gemma3, gemma3_vision, smollm3, olmo2,
            mixtral, qwen3_moe, gpt_oss, gpt_oss_bf16, llama_fp8)}

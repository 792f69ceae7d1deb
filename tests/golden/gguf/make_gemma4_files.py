#!/usr/bin/env python3
"""Writes gemma4.gguf and gemma4_moe.gguf: the checkpoints ../gemma4 and ../gemma4_moe as llama.cpp's
converter writes them (conversion/gemma.py, Gemma4Model), so that the goldens of these folders are
theirs, too. Names of tensors are those of the package `gguf`. Not needed to build or to test: the
results are committed.

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install torch transformers gguf
    /tmp/goldens/bin/python tests/golden/gguf/make_gemma4_files.py
"""

import pathlib

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import load_file
from transformers import AutoConfig

HERE = pathlib.Path(__file__).resolve().parent
STILL = 1e30  # a factor of rope frequencies that leaves pairs where they are
CONTROLS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>"]
VISIBLE = ["<|channel>", "<channel|>", '<|"|>']


def settings(writer, text):
    layers = text.num_hidden_layers
    slides = [kind == "sliding_attention" for kind in text.layer_types]
    first_shared = layers - text.num_kv_shared_layers
    full = slides.index(False)
    full_dim, full_heads = shape_of(text, full)
    dim, heads = shape_of(text, slides.index(True))
    writer.add_context_length(text.max_position_embeddings)
    writer.add_embedding_length(text.hidden_size)
    writer.add_block_count(layers)
    width = text.intermediate_size
    writer.add_feed_forward_length(
        [width if i < first_shared else 2 * width for i in range(layers)]
        if text.use_double_wide_mlp else width)
    writer.add_head_count(text.num_attention_heads)
    writer.add_head_count_kv(heads if full_heads == heads else
                             [heads if slide else full_heads for slide in slides])
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    writer.add_rope_freq_base(text.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(text.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_sliding_window(text.sliding_window)
    writer.add_sliding_window_pattern(slides)
    writer.add_shared_kv_layers(text.num_kv_shared_layers)
    writer.add_embedding_length_per_layer_input(text.hidden_size_per_layer_input or 0)
    writer.add_key_length(full_dim)
    writer.add_value_length(full_dim)
    writer.add_key_length_swa(dim)
    writer.add_value_length_swa(dim)
    writer.add_rope_dimension_count(full_dim)
    writer.add_rope_dimension_count_swa(dim)
    if text.final_logit_softcapping:
        writer.add_final_logit_softcapping(text.final_logit_softcapping)
    if text.enable_moe_block:
        writer.add_expert_count(text.num_experts)
        writer.add_expert_used_count(text.top_k_experts)
        writer.add_expert_feed_forward_length(text.moe_intermediate_size)
    turning = int(full_dim * text.rope_parameters["full_attention"]["partial_rotary_factor"] / 2)
    factors = [1.0] * turning + [STILL] * (full_dim // 2 - turning)
    writer.add_tensor("rope_freqs.weight", np.array(factors, np.float32))


def shape_of(text, layer):
    """head_dim and num_key_value_heads of a layer."""
    own = text.per_layer_config[layer]
    return own.head_dim, own.num_key_value_heads


def vocabulary(writer, size):
    tokens = CONTROLS + VISIBLE
    types = [gguf.TokenType.CONTROL] * len(CONTROLS) + [gguf.TokenType.USER_DEFINED] * len(VISIBLE)
    types += [gguf.TokenType.NORMAL] * (size - len(tokens))
    tokens += [f"t{i}" for i in range(len(tokens), size)]
    writer.add_tokenizer_model("gemma4")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * size)
    writer.add_token_types(types)
    writer.add_token_merges([])
    writer.add_bos_token_id(CONTROLS.index("<bos>"))
    writer.add_eos_token_id(CONTROLS.index("<eos>"))
    writer.add_unk_token_id(CONTROLS.index("<unk>"))
    writer.add_pad_token_id(CONTROLS.index("<pad>"))
    writer.add_add_space_prefix(False)
    writer.add_add_bos_token(True)


def tensors(writer, folder, layers):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA4, layers)
    for name, values in load_file(folder / "model.safetensors").items():
        if "vision" in name:
            continue
        name = name.replace("language_model.", "")
        layer = ".".join(name.split(".")[:3]) + "."
        if name.endswith("router.scale"):
            made = names.get_name(layer + "router.proj") + ".scale"
        elif name.endswith("per_expert_scale"):
            made = names.get_name(layer + "experts.down_proj") + ".scale"
        else:
            plain = name.removesuffix(".weight")
            made = names.get_name(plain) + ".weight"
        if values.dim() < 2:  # the converter widens these
            writer.add_tensor(made, values.float().numpy())
        else:
            stored = values.to(torch.bfloat16).view(torch.uint8).numpy()
            writer.add_tensor(made, stored, raw_dtype=GGMLQuantizationType.BF16)


def main():
    for name in ("gemma4", "gemma4_moe"):
        config = AutoConfig.from_pretrained(HERE.parent / name)
        text = config.get_text_config()
        path = HERE / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, "gemma4")
        settings(writer, text)
        vocabulary(writer, text.vocab_size)
        tensors(writer, HERE.parent / name, text.num_hidden_layers)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes gemma3n.gguf: the checkpoint ../gemma3n as llama.cpp's converter writes it (conversion/gemma.py,
Gemma3NModel), so that the golden of that folder is the file's, too. Not needed to build or to test: the
result is committed. Needs what make_gemma4_files.py needs.

    /tmp/goldens/bin/python tests/golden/gguf/make_gemma3n_file.py [FILE]

With FILE: writes there another one, of random weights, with the sizes that llama.cpp takes for granted
(inputs of 256, a rank of 64, keys of their own in the first 20 layers, gates of 10 cut off), so that it can
judge: see gguf_judge.py.
"""

import json
import pathlib
import sys

import gguf
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import load_file
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import recipe  # noqa: E402  (the folder is known only now)

GOLDEN = HERE.parent / "gemma3n"
CONTROLS = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
# The converter keeps these in float32.
FLOAT32 = ("altup_predict_coef.weight", "altup_correct_coef.weight")


def deviations(part):
    return torch.distributions.normal.Normal(0, 1).icdf(torch.tensor(part, dtype=torch.float32)).item()


def settings(writer, text):
    writer.add_context_length(text.max_position_embeddings)
    writer.add_embedding_length(text.hidden_size)
    writer.add_block_count(text.num_hidden_layers)
    writer.add_feed_forward_length(text.intermediate_size)
    writer.add_head_count(text.num_attention_heads)
    writer.add_head_count_kv(text.num_key_value_heads)
    writer.add_layer_norm_rms_eps(text.rms_norm_eps)
    writer.add_key_length(text.head_dim)
    writer.add_value_length(text.head_dim)
    writer.add_rope_freq_base(text.rope_parameters["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(text.rope_parameters["sliding_attention"]["rope_theta"])
    writer.add_final_logit_softcapping(text.final_logit_softcapping)
    writer.add_sliding_window(text.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in text.layer_types])
    writer.add_altup_active_idx(text.altup_active_idx)
    writer.add_altup_num_inputs(text.altup_num_inputs)
    writer.add_embedding_length_per_layer_input(text.hidden_size_per_layer_input)
    writer.add_shared_kv_layers(text.num_kv_shared_layers)
    writer.add_activation_sparsity_scale([deviations(part) for part in text.activation_sparsity_pattern])


def vocabulary(writer, size):
    """A sentencepiece model's, as the publisher has."""
    controls = len(CONTROLS)
    tokens = CONTROLS + [f"t{i}" for i in range(controls, size)]
    types = [gguf.TokenType.UNKNOWN if token == "<unk>" else gguf.TokenType.CONTROL for token in CONTROLS]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-1000.0] * size)
    writer.add_token_types(types + [gguf.TokenType.NORMAL] * (size - controls))
    for add, token in ((writer.add_bos_token_id, "<bos>"), (writer.add_eos_token_id, "<eos>"),
                       (writer.add_unk_token_id, "<unk>"), (writer.add_pad_token_id, "<pad>")):
        add(CONTROLS.index(token))
    writer.add_add_space_prefix(False)


def add(writer, name, values):
    if values.dim() < 2 or name.endswith(FLOAT32):
        writer.add_tensor(name, values.float().numpy())
    else:
        writer.add_tensor(name, values.to(torch.bfloat16).view(torch.uint8).numpy(),
                          raw_dtype=GGMLQuantizationType.BF16)


def padded(values, rows):
    """Tokens without an input of layers get zeros."""
    return torch.cat([values, values.new_zeros(rows - len(values), values.shape[1])])


def tensors(writer, named, text):
    """`named`: the decoder's tensors, under the names of Gemma3nForCausalLM."""
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3N, text.num_hidden_layers)
    for name, values in sorted(named.items()):
        if "altup_projections." in name or "altup_unembed_projections." in name:
            continue
        if "embed_tokens_per_layer" in name:
            values = padded(values, text.vocab_size)
        add(writer, names.get_name(name.removesuffix(".weight")) + ".weight", values)
    for name in ("model.altup_projections", "model.altup_unembed_projections"):
        stacked = torch.stack([named[f"{name}.{i}.weight"] for i in range(text.altup_num_inputs - 1)])
        add(writer, names.get_name(name) + ".weight", stacked)


def write(path, named, text):
    writer = gguf.GGUFWriter(path, "gemma3n")
    settings(writer, text)
    vocabulary(writer, text.vocab_size)
    tensors(writer, named, text)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_published_sizes(path):
    layers = 22
    # llama.cpp divides by one less than the gate's columns: with many that is as good as equal.
    text = Gemma3nTextConfig(
        **recipe.sizes(101, 32, 8192, layers, 4, 2, 8), sliding_window=17, num_kv_shared_layers=layers - 20,
        vocab_size_per_layer_input=101)
    model = Gemma3nForCausalLM(text).float()
    recipe.randomize(model, 1)
    for name, parameter in model.named_parameters():  # so that 22 layers magnify no roundings
        if "tion_coefs" in name or ".post_" in name:
            parameter.data.mul_(0.2)
    named = dict(model.state_dict())
    for layer in range(layers - 2, layers):  # nothing uses them, and llama.cpp wants them
        for part in ("k_proj", "v_proj", "k_norm"):
            at = "model.layers.{}.self_attn." + part + ".weight"
            named[at.format(layer)] = named[at.format(0)].clone()
    named.pop("lm_head.weight")  # the embedding
    write(path, named, text)


def main():
    if len(sys.argv) > 1:
        return write_published_sizes(pathlib.Path(sys.argv[1]))
    config = json.loads((GOLDEN / "config.json").read_text())["text_config"]
    text = Gemma3nTextConfig.from_dict(config)
    named = {name.replace("model.language_model.", "model."): values
             for name, values in load_file(GOLDEN / "model.safetensors").items() if "vision" not in name}
    path = HERE / "gemma3n.gguf"
    write(path, named, text)
    print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

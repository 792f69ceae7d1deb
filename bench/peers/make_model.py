#!/usr/bin/env python3
"""Writes a GGUF file of random weights that Annulus, llama.cpp and OpenVINO GenAI all read.

  make_model.py CONFIG.json FILE.gguf [--type BF16|F16|Q8_0|Q4_0]
    CONFIG.json: of a Qwen2 shape, for example bench/configs/qwen2.5-0.5b.json

Equal files make equal work: speed does not depend on what the weights say. Matrices have the type;
norms and biases are float32. The vocabulary is one token for each byte and made-up ones: prompts are
token ids. Needs the Python packages gguf and numpy.
"""

import argparse
import json

import gguf
import numpy


def byte_tokens():
    """The 256 characters with which byte-level BPE writes bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(len(others))]


FILE_TYPES = {"BF16": gguf.LlamaFileType.MOSTLY_BF16, "F16": gguf.LlamaFileType.MOSTLY_F16,
              "Q8_0": gguf.LlamaFileType.MOSTLY_Q8_0, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}


def add_header(writer, config, kind):
    heads = config["num_attention_heads"]
    writer.add_file_type(FILE_TYPES[kind])  # OpenVINO GenAI reads no file without it
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])


def add_vocabulary(writer, size):
    tokens = byte_tokens()
    tokens += [f"{tokens[0]}{tokens[1]}"] + [f"t{i}" for i in range(size - len(tokens) - 2)]
    tokens.append("<|endoftext|>")
    types = [gguf.TokenType.NORMAL] * (size - 1) + [gguf.TokenType.CONTROL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_eos_token_id(size - 1)
    writer.add_pad_token_id(size - 1)
    writer.add_add_bos_token(False)


class Weights:
    """Adds tensors of a normal distribution. Seeded: equal arguments make equal files."""

    def __init__(self, writer, kind):
        self.writer, self.kind = writer, kind
        self.random = numpy.random.default_rng(1)

    def matrix(self, name, rows, cols):
        values = self.random.standard_normal((rows, cols), numpy.float32) * cols ** -0.5
        self.writer.add_tensor(name, gguf.quants.quantize(values, self.kind), raw_dtype=self.kind)

    def vector(self, name, size, mean=0.0):
        values = (mean + 0.02 * self.random.standard_normal(size)).astype(numpy.float32)
        self.writer.add_tensor(name, values)


def add_layer(weights, at, config):
    hidden, feed_forward = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    queries = head_dim * config["num_attention_heads"]
    keys = head_dim * config["num_key_value_heads"]
    weights.vector(f"blk.{at}.attn_norm.weight", hidden, 1.0)
    for name, rows in (("q", queries), ("k", keys), ("v", keys)):
        weights.matrix(f"blk.{at}.attn_{name}.weight", rows, hidden)
        weights.vector(f"blk.{at}.attn_{name}.bias", rows)
    weights.matrix(f"blk.{at}.attn_output.weight", hidden, queries)
    weights.vector(f"blk.{at}.ffn_norm.weight", hidden, 1.0)
    weights.matrix(f"blk.{at}.ffn_gate.weight", feed_forward, hidden)
    weights.matrix(f"blk.{at}.ffn_up.weight", feed_forward, hidden)
    weights.matrix(f"blk.{at}.ffn_down.weight", hidden, feed_forward)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("config")
    parser.add_argument("file")
    parser.add_argument("--type", default="BF16", choices=list(FILE_TYPES))
    args = parser.parse_args()
    with open(args.config, encoding="utf-8") as file:
        config = json.load(file)
    if config["model_type"] != "qwen2":
        parser.error(f"{args.config} is of the type {config['model_type']}; this writes qwen2")
    writer = gguf.GGUFWriter(args.file, "qwen2")
    add_header(writer, config, args.type)
    add_vocabulary(writer, config["vocab_size"])
    weights = Weights(writer, gguf.GGMLQuantizationType[args.type])
    weights.matrix("token_embd.weight", config["vocab_size"], config["hidden_size"])
    for at in range(config["num_hidden_layers"]):
        add_layer(weights, at, config)
    weights.vector("output_norm.weight", config["hidden_size"], 1.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Serves complete Hugging Face directories of every family and compares with Transformers.

    tests/golden/serve_directories.py BUILD DATA [NAME...]

BUILD holds annulusd and annulus, DATA the optional test data (tokenizers/, chat_templates/).
For each family a directory is made as publishers ship it: config.json, safetensors (tied or not,
sharded or not, MXFP4 or float8 where the family has them), a published tokenizer.json, a published
chat template, generation_config.json. `annulusd --check` must accept it; then the daemon serves it
and `annulus complete` and `annulus ask` answer greedily. Token ids must be those of
`generate(do_sample=False)` in float32, for the weights as stored widened to float32. Run by hand
(it needs Python with torch and transformers); the committed goldens are what the tests use.
"""

import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

import families
import recipe

PROMPTS = ["Once upon a time", "The quick brown fox — naïve café 漢字 🎉 jumped over 12345 dogs.\n\n\tEnd",
           "word " * 300]
QUESTION = "What is in it?"
TOKENS = 40


def llama3_rope(factor):
    return dict(rope_type="llama3", factor=factor, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=8192)


def longrope(pairs):
    return dict(rope_type="longrope", short_factor=[1.0 + 0.02 * i for i in range(pairs)],
                long_factor=[1.0 + 0.8 * i for i in range(pairs)])


class Family:
    """One directory: how the model is made, which tokenizer and template it has."""

    def __init__(self, make, tokenizer, template, **rest):
        self.make, self.tokenizer, self.template = make, tokenizer, template
        self.eos = rest.get("eos", [2])
        self.shard = rest.get("shard", "5GB")
        self.store = rest.get("store")
        self.prepare = rest.get("prepare", lambda model: recipe.rounded(model, torch.bfloat16))
        self.bos = rest.get("bos")
        self.generation = rest.get("generation", {})


def model(name, config, vocabulary, *shape, **rest):
    def make():
        values = recipe.sizes(vocabulary, *shape, **rest)
        values.update(bos_token_id=1, eos_token_id=2, pad_token_id=None)
        values.update({key: rest[key] for key in rest if key.endswith("token_id")})
        return getattr(transformers, name)(getattr(transformers, config)(**values))
    return make


def gemma3_multimodal():
    text = transformers.Gemma3TextConfig(
        **recipe.sizes(32064, 64, 96, 6, 4, 2, 24), sliding_window=64, query_pre_attn_scalar=24,
        rope_parameters={"full_attention": dict(rope_type="linear", factor=8.0, rope_theta=1e6),
                         "sliding_attention": dict(rope_type="default", rope_theta=1e4)})
    vision = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                  image_size=28, patch_size=14)
    return transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
        text_config=text.to_dict(), vision_config=vision, mm_tokens_per_image=4,
        attn_implementation="eager"))


def mistral3():
    text = transformers.MistralConfig(
        **recipe.sizes(MISTRAL, 64, 172, 3, 4, 2, 16, max_position_embeddings=131072),
        **recipe.rope(1e9), sliding_window=None)
    vision = dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                  num_attention_heads=2, image_size=28, patch_size=14, head_dim=8)
    return transformers.Mistral3ForConditionalGeneration(transformers.Mistral3Config(
        text_config=text.to_dict(), vision_config=vision, attn_implementation="eager"))


LLAMA2, MISTRAL, GPT2, LLAMA3, QWEN = 32064, 32768, 50257, 128256, 151936

FAMILIES = {
    "llama2": Family(model("LlamaForCausalLM", "LlamaConfig", LLAMA2, 64, 172, 3, 4, 4),
                     "llama2", None, bos="<s>"),
    "llama3.2": Family(
        model("LlamaForCausalLM", "LlamaConfig", LLAMA3, 64, 172, 3, 4, 2, 16,
              tie_word_embeddings=True, rms_norm_eps=1e-5, max_position_embeddings=131072,
              **recipe.rope(5e5, **llama3_rope(32.0))),
        "llama3", "meta-llama-Llama-3.2-3B-Instruct", eos=[128001, 128008, 128009],
        bos="<|begin_of_text|>", generation=dict(do_sample=True, temperature=0.6, top_p=0.9)),
    "mistral": Family(
        model("MistralForCausalLM", "MistralConfig", MISTRAL, 64, 172, 3, 4, 2, 16,
              sliding_window=None, max_position_embeddings=131072, **recipe.rope(1e6)),
        "mistral-v3", "mistralai-Mistral-Nemo-Instruct-2407", bos="<s>", shard="3MB"),
    "qwen2.5": Family(
        model("Qwen2ForCausalLM", "Qwen2Config", QWEN, 64, 172, 3, 4, 2, tie_word_embeddings=True,
              max_position_embeddings=32768, **recipe.rope(1e6)),
        "qwen3", "Qwen-Qwen2.5-7B-Instruct", eos=[151645, 151643],
        generation=dict(do_sample=True, temperature=0.7, top_p=0.8, top_k=20,
                        repetition_penalty=1.05)),
    "qwen3": Family(
        model("Qwen3ForCausalLM", "Qwen3Config", QWEN, 64, 172, 3, 4, 2, 24,
              tie_word_embeddings=True, max_position_embeddings=40960, **recipe.rope(1e6)),
        "qwen3", "Qwen-Qwen3-0.6B", eos=[151645, 151643],
        generation=dict(do_sample=True, temperature=0.6, top_p=0.95, top_k=20)),
    "qwen3_moe": Family(
        model("Qwen3MoeForCausalLM", "Qwen3MoeConfig", QWEN, 64, 172, 3, 4, 2, 24, num_experts=8,
              num_experts_per_tok=3, moe_intermediate_size=32, norm_topk_prob=True,
              max_position_embeddings=40960, **recipe.rope(1e6)),
        "qwen3", "Qwen-Qwen3-0.6B", eos=[151645, 151643], shard="20MB"),
    "phi3": Family(
        model("Phi3ForCausalLM", "Phi3Config", LLAMA2, 96, 172, 3, 4, 2,
              max_position_embeddings=131072, original_max_position_embeddings=4096,
              partial_rotary_factor=0.75, sliding_window=262144,
              **recipe.rope(1e4, partial_rotary_factor=0.75, **longrope(9))),
        "llama2", "microsoft-Phi-3.5-mini-instruct", bos="<s>", eos=[32007, 32001, 32000]),
    "phi3_long": Family(
        model("Phi3ForCausalLM", "Phi3Config", LLAMA2, 96, 172, 3, 4, 2,
              max_position_embeddings=4096, original_max_position_embeddings=256,
              partial_rotary_factor=0.75, sliding_window=None,
              **recipe.rope(1e4, partial_rotary_factor=0.75, **longrope(9))),
        "llama2", "microsoft-Phi-3.5-mini-instruct", bos="<s>", eos=[32007, 32001, 32000]),
    "gemma2": Family(
        model("Gemma2ForCausalLM", "Gemma2Config", LLAMA2, 64, 172, 4, 4, 2, 24, sliding_window=64,
              query_pre_attn_scalar=24, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
              **recipe.rope(1e4)),
        "llama2", "google-gemma-2-2b-it", bos="<s>"),
    "gemma3_text": Family(
        model("Gemma3ForCausalLM", "Gemma3TextConfig", LLAMA2, 64, 96, 6, 4, 1, 24,
              sliding_window=64, query_pre_attn_scalar=24), "llama2", "google-gemma-2-2b-it",
        bos="<s>"),
    "gemma3": Family(gemma3_multimodal, "llama2", "google-gemma-2-2b-it", bos="<s>", eos=[1, 106]),
    "mistral3": Family(mistral3, "mistral-v3", "mistralai-Mistral-Nemo-Instruct-2407", bos="<s>",
                       shard="3MB"),
    "smollm3": Family(
        model("SmolLM3ForCausalLM", "SmolLM3Config", LLAMA3, 64, 172, 4, 4, 2,
              max_position_embeddings=65536, tie_word_embeddings=True, **recipe.rope(5e6)),
        "llama3", "HuggingFaceTB-SmolLM3-3B", eos=[128012]),
    "olmo2": Family(
        model("Olmo2ForCausalLM", "Olmo2Config", GPT2, 64, 172, 3, 4, 2, **recipe.rope(5e5)),
        "gpt2", None, eos=[50256]),
    "mixtral": Family(
        model("MixtralForCausalLM", "MixtralConfig", MISTRAL, 64, 96, 3, 4, 2, num_local_experts=8,
              num_experts_per_tok=2, max_position_embeddings=32768, **recipe.rope(1e6)),
        "mistral-v3", "mistralai-Mistral-Nemo-Instruct-2407", bos="<s>", shard="3MB"),
    "gpt_oss": Family(
        model("GptOssForCausalLM", "GptOssConfig", GPT2, 64, 64, 4, 4, 2, 32, num_local_experts=8,
              num_experts_per_tok=4, sliding_window=128, swiglu_limit=7.0,
              max_position_embeddings=131072,
              **recipe.rope(150000.0, rope_type="yarn", factor=32.0, beta_fast=32.0, beta_slow=1.0,
                            truncate=False, original_max_position_embeddings=4096)),
        "gpt2", "openai-gpt-oss-120b", eos=[50256], prepare=families.round_experts,
        store=families.store_mxfp4),
    "yarn": Family(
        model("Qwen2ForCausalLM", "Qwen2Config", QWEN, 64, 172, 3, 4, 2,
              max_position_embeddings=32768,
              **recipe.rope(1e6, rope_type="yarn", factor=4.0,
                            original_max_position_embeddings=32768)),
        "qwen3", "Qwen-Qwen2.5-7B-Instruct", eos=[151645, 151643]),
}


def randomize(model):
    generator = torch.Generator().manual_seed(7)
    text = getattr(model.config, "text_config", model.config)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        name = name.replace("model.language_model.", "model.")
        mean, deviation = recipe.spread(name, parameter.shape, text.model_type)
        parameter.data.copy_(mean + deviation * noise)


def make_directory(family, folder, data):
    made = family.make().float().eval()
    randomize(made)
    family.prepare(made)
    scale = getattr(getattr(made.model, "language_model", made.model).embed_tokens, "embed_scale", None)
    if isinstance(scale, torch.Tensor):
        scale.copy_(scale.to(torch.bfloat16).float())
    copy.deepcopy(made).to(torch.bfloat16).save_pretrained(folder, max_shard_size=family.shard)
    if family.store:
        family.store(made, folder)
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": []}
        (folder / "config.json").write_text(json.dumps(config, indent=2))
    tokenizer = data / "tokenizers" / family.tokenizer
    for file in ("tokenizer.json", "tokenizer_config.json"):
        if (tokenizer / file).exists():
            shutil.copy(tokenizer / file, folder)
    if not (folder / "tokenizer_config.json").exists():
        (folder / "tokenizer_config.json").write_text(json.dumps(
            {"tokenizer_class": "PreTrainedTokenizerFast", **({"bos_token": family.bos, "eos_token": "</s>"} if family.bos else {})}))
    if family.template:
        shutil.copy(data / "chat_templates" / (family.template + ".jinja"),
                    folder / "chat_template.jinja")
    (folder / "generation_config.json").write_text(json.dumps(
        {"eos_token_id": family.eos, "transformers_version": "4.51.0", **family.generation}))
    return made


@torch.no_grad()
def generate(made, ids, eos):
    """Greedy ids until an end-of-text, and the gap between the two best logits of each."""
    out, gaps = [], []
    step = made(torch.tensor([ids]), use_cache=True)
    while True:
        best = torch.topk(step.logits[0, -1], 2)
        gaps.append(float(best.values[0] - best.values[1]))
        out.append(int(best.indices[0]))
        if out[-1] in eos or len(out) == TOKENS:
            return out, gaps
        step = made(torch.tensor([[out[-1]]]), past_key_values=step.past_key_values, use_cache=True)


class Daemon:
    def __init__(self, build, folder, *options):
        self.process = subprocess.Popen(
            [build / "annulusd", "--model", folder, "--listen", "127.0.0.1:0", "--metrics", "off",
             "--kv-memory", "256MiB", "--served-model-name", "m", *options],
            stderr=subprocess.PIPE, text=True)
        log = ""
        for line in self.process.stderr:
            log += line
            found = re.search(r"ready .* port=(\d+)", line)
            if found:
                self.address = f"127.0.0.1:{found.group(1)}"
                return
        raise RuntimeError(log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait(60)


def client(build, daemon, *arguments):
    done = subprocess.run([build / "annulus", *arguments, "--server", daemon.address, "--json",
                           "--quiet"], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def load_tokenizer(folder):
    """The package takes merges of tokens with spaces as pairs only."""
    value = json.loads((folder / "tokenizer.json").read_text())
    merges, tokens = value["model"]["merges"], value["model"]["vocab"]

    def pair(merge):
        cuts = [i for i, c in enumerate(merge) if c == " "]
        return next([merge[:i], merge[i + 1:]] for i in cuts
                    if {merge[:i], merge[i + 1:], merge[:i] + merge[i + 1:]} <= tokens.keys())

    value["model"]["merges"] = [pair(m) if isinstance(m, str) else m for m in merges]
    return Tokenizer.from_str(json.dumps(value))


def chat_prompt(folder, content):
    config = json.loads((folder / "tokenizer_config.json").read_text())
    names = {}
    for key in ("bos_token", "eos_token"):
        value = config.get(key)
        names[key] = value["content"] if isinstance(value, dict) else value
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=load_tokenizer(folder),
        chat_template=(folder / "chat_template.jinja").read_text(), **names)
    return tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False,
                                         add_generation_prompt=True)


def try_family(name, family, build, data, folder):
    made = make_directory(family, folder, data)
    check = subprocess.run([build / "annulusd", "--check", "--model", folder], capture_output=True,
                           text=True, timeout=300)
    if check.returncode != 0:
        return f"REFUSED {check.stderr.strip()}"
    fast = load_tokenizer(folder)
    wrong, cases, gap = [], 0, float("inf")
    options = ["--temperature", "0", "--repetition-penalty", "1", "--max-tokens", str(TOKENS)]
    for ranks in ("1", "3"):
        with Daemon(build, folder, "--weights-dtype", "f32", "--ranks", ranks, "--page-tokens",
                    "16", "--tokens-per-rank", "64") as daemon:
            prompts = [("complete", fast.encode(prompt).ids, ["complete", prompt, *options])
                       for prompt in PROMPTS]
            if family.template:
                document = folder / "document.txt"
                document.write_text(PROMPTS[1])
                before, behind = chat_prompt(folder, QUESTION).split(QUESTION)
                # The plain frame: each part is tokenized by itself.
                parts = (before, "# Document 1: document.txt\n\n", PROMPTS[1],
                         "\n\n# End of document 1\n\n", "Question: " + QUESTION + behind)
                ids = [id for part in parts
                       for id in fast.encode(part, add_special_tokens=False).ids]
                prompts.append(("ask", ids, ["ask", document, QUESTION, *options]))
            for what, ids, arguments in prompts:
                expected, gaps = generate(made, ids, family.eos)
                answer = client(build, daemon, *arguments)
                cases += 1
                if answer["usage"]["prompt_tokens"] != len(ids):
                    wrong.append(f"{what} has {answer['usage']['prompt_tokens']} prompt tokens, "
                                 f"expected {len(ids)}")
                given = answer["token_ids"]
                if expected[-1] in family.eos and len(given) < len(expected):
                    given = given + expected[-1:]  # an end-of-text is not part of the answer
                if given == expected:
                    gap = min(gap, *gaps)
                    continue
                at = next((i for i, pair in enumerate(zip(given, expected)) if pair[0] != pair[1]),
                          min(len(given), len(expected)))
                wrong.append(f"{what} with {ranks} ranks differs from token {at} of {len(expected)} "
                             f"on ({len(given)} given), where the gap is {gaps[at:at + 1]}")
    return f"{cases - len(wrong)} of {cases} answers equal, smallest gap {gap:.4f} {wrong or ''}"


def main():
    build, data = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name in sys.argv[3:] or FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name}: {try_family(name, FAMILIES[name], build, data, pathlib.Path(folder))}", flush=True)


if __name__ == "__main__":
    main()

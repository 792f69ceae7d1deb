"""What every golden shares: seeded weights, the greedy path, and the files that are written."""

import json
import pathlib
import re
import shutil

import torch
import transformers

VERSIONS = ("torch 2.15.0, transformers 5.23.0", "torch 2.15.0, transformers 5.24.0")
INSTALLED = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"
HERE = pathlib.Path(__file__).resolve().parent
PROMPT_TOKENS = 150
GREEDY_TOKENS = 64
SMALLEST_GAP = 0.02  # between the two best logits, at every greedy step
# Between the router's logits of the last expert chosen and of the first one left out: at every
# position, and at those of the prompt. The latter is far beyond what rounding to bfloat16 does to a
# logit; another choice of experts is another function, not an error of this one.
SMALLEST_ROUTER_GAP = 2e-4
CLEAR_ROUTER_GAP = 0.3


def sizes(vocabulary, hidden, intermediate, layers, heads, kv_heads, head_dim=None, **rest):
    given = dict(vocab_size=vocabulary, hidden_size=hidden, intermediate_size=intermediate,
                 num_hidden_layers=layers, num_attention_heads=heads,
                 num_key_value_heads=kv_heads, max_position_embeddings=2048,
                 attn_implementation="eager", experts_implementation="eager")
    if head_dim is not None:
        given["head_dim"] = head_dim
    return {**given, **rest}


def rope(theta, **rest):
    return {"rope_parameters": {"rope_theta": theta, "rope_type": "default", **rest}}


def spread(name, shape, model_type):
    """Mean and deviation of one parameter: sharp attention, spread logits and clear choices of
    experts, unlike the near-uniform default."""
    gemma = model_type.startswith("gemma")
    gemma4 = model_type.startswith(("gemma3n", "gemma4"))
    around_one = 0.0 if gemma and not gemma4 else 1.0  # older Gemma's norms multiply by 1 + w
    if name.endswith("modality_router.weight"):
        return 0.0, shape[-1] ** 0.5  # its inputs are divided by hidden_size
    if name.endswith("tion_coefs.weight"):
        return 0.0, 0.12  # every layer multiplies by what these make
    if name.endswith("scale") or (gemma4 and re.search(r"norm_\d.weight$", name)):
        return 1.0, 0.2
    if gemma4 and name.endswith(("q_norm.weight", "k_norm.weight")):
        return 0.6, 0.15  # scores are not scaled
    if gemma4 and name.endswith("router.proj.weight"):
        return 0.0, 3.0  # its inputs are divided by sqrt(hidden_size)
    if "per_layer_input_gate" in name:
        return 0.0, 0.3 / shape[-1] ** 0.5  # of the residual, which is not normed
    if gemma and name == "model.norm.weight":
        return 3.0, 0.2  # its embeddings are small, because they are scaled up and are the head, too
    if name.endswith(("q_norm.weight", "k_norm.weight")) or "_layernorm.norms." in name:
        return around_one + 0.5, 0.3
    if name.endswith("norm.weight"):
        return around_one, 0.2
    if name.endswith("bias"):
        return 0.0, 0.3
    if name.endswith("sinks"):
        return 1.0, 1.0
    if "embed_tokens" in name:
        return 0.0, 0.15 if gemma else 0.5
    inputs = shape[1] if model_type == "gpt_oss" and ".experts." in name else shape[-1]
    sharp = any(part in name for part in ("q_proj", "k_proj", "qkv_proj", "router", "mlp.gate."))
    return 0.0, (2 if sharp else 1) / inputs ** 0.5


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    model_type = getattr(model.config, "text_config", model.config).model_type
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        name = name.replace("model.language_model.", "model.")  # of a larger model's text half
        mean, deviation = spread(name, parameter.shape, model_type)
        parameter.data.copy_(mean + deviation * noise)
    for name, scale in model.named_buffers():
        if name.endswith("layer_scalar"):
            scale.copy_(0.6 + 0.3 * torch.rand(1, generator=generator))
    for bias in choice_biases(model):
        bias.copy_((0.2 * torch.randn(bias.shape, generator=generator)).to(torch.bfloat16).float())


def loud(model, factor):
    """Blocks add as much to the residual as the embedding, or a tied head repeats its token."""
    for key, parameter in model.named_parameters():
        if key.endswith(("o_proj.weight", "down_proj.weight", "c_proj.weight")):
            parameter.data.mul_(factor)


def choice_biases(model):
    return [buffer for name, buffer in model.named_buffers()
            if name.endswith("e_score_correction_bias")]


@torch.no_grad()
def logits_of(model, ids):
    """Every position at once, without a cache: the plainest way."""
    return model(torch.tensor([ids]), use_cache=False).logits[0]


def greedy(model, prompt):
    ids, smallest_gap = list(prompt), float("inf")
    for _ in range(GREEDY_TOKENS):
        best = torch.topk(logits_of(model, ids)[-1], 2)
        smallest_gap = min(smallest_gap, float(best.values[0] - best.values[1]))
        if smallest_gap < SMALLEST_GAP:
            break
        ids.append(int(best.indices[0]))
    return ids[len(prompt):], smallest_gap


def gap_behind(values, count):
    """How far the best `count` of each row are from the others; infinite if there are no others."""
    if count == values.shape[-1]:
        return torch.full(values.shape[:-1], float("inf"))
    best = torch.topk(values, count + 1, dim=-1).values
    return best[..., -2] - best[..., -1]


def sigmoid_gap(module, logits, bias):
    """Of scores, as a gap of logits that surely causes it: the sigmoid's slope is at most 1/4."""
    keys = logits.sigmoid() + bias
    groups = getattr(module, "num_group", 1)
    kept = getattr(module, "topk_group", 1)
    gap = torch.full(keys.shape[:-1], float("inf"))
    if groups > 1:
        grouped = keys.view(len(keys), groups, -1)
        sums = grouped.topk(2, dim=-1).values.sum(-1)
        gap = gap_behind(sums, kept) / 2
        chosen = torch.zeros_like(sums).scatter_(1, sums.topk(kept, dim=-1).indices, 1).bool()
        keys = grouped.masked_fill(~chosen[..., None], -1e9).flatten(1)
    return 4 * torch.minimum(gap, gap_behind(keys, module.top_k))


def router_gaps(model, ids):
    """At each position, how near any choice of experts was to another. Infinite without experts."""
    gaps = torch.full((len(ids),), float("inf"))

    def look(module, inputs, output):
        if hasattr(module, "per_expert_scale"):  # Gemma 4, which gives all probabilities
            gaps.copy_(torch.minimum(gaps, gap_behind(output[0].log(),
                                                      module.config.top_k_experts)))
            return
        rows = inputs[0].reshape(len(ids), -1)
        logits = torch.nn.functional.linear(rows, module.weight, getattr(module, "bias", None))
        bias = inputs[1] if len(inputs) > 1 else getattr(module, "e_score_correction_bias", None)
        gap = (gap_behind(logits, module.top_k) if bias is None
               else sigmoid_gap(module, logits, bias))
        gaps.copy_(torch.minimum(gaps, gap))

    hooks = [module.register_forward_hook(look) for module in model.modules()
             if type(module).__name__.lower().endswith(("topkrouter", "textrouter"))]
    if hooks:
        logits_of(model, ids)
    for hook in hooks:
        hook.remove()
    return gaps


def random_prompt(model, vocabulary, tokens, generator):
    """Tokens at which a choice of experts is not clear are drawn anew, from the first one on."""
    draw = lambda count: torch.randint(3, vocabulary, (count,), generator=generator)
    prompt = draw(tokens)
    while True:
        unclear = (router_gaps(model, prompt.tolist()) < CLEAR_ROUTER_GAP).nonzero()
        if len(unclear) == 0:
            return prompt.tolist()
        prompt[unclear[0]] = draw(1)


def largest_error(model, prompt, logits):
    """Of the float32 logits against float64, relative to the largest logit."""
    exact = logits_of(model.double(), prompt)
    model.float()
    return float((exact - logits).abs().max() / exact.abs().max())


def rounded(model, dtype):
    """The weights as `dtype` stores them, still in float32 arithmetic."""
    for parameter in model.parameters():
        parameter.data.copy_(parameter.data.to(dtype).float())


def candidate(make, prepare, vocabulary, prompt_tokens):
    """The first seed whose greedy path has no near-ties."""
    for seed in range(1, 2000):
        model = make().float().eval()
        randomize(model, seed)
        prepare(model)
        generator = torch.Generator().manual_seed(seed)
        prompt = random_prompt(model, vocabulary, prompt_tokens, generator)
        ids, gap = greedy(model, prompt)
        if gap < SMALLEST_GAP or len(set(ids)) <= 8:
            continue
        if router_gaps(model, prompt + ids).min() >= SMALLEST_ROUTER_GAP:
            return seed, model, prompt, ids, gap
    raise RuntimeError("no seed gives a clear greedy path")


def older_style(config):
    """The same settings as Transformers 4 writes them."""
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    config["rope_scaling"] = None if parameters["rope_type"] == "default" else parameters
    config["torch_dtype"] = config.pop("dtype")
    config.pop("transformers_version")
    return config


def write_expected(folder, suffix, seed, vocabulary, prompt, ids, gap, logits, error):
    (folder / f"logits{suffix}.f32").write_bytes(logits.numpy().astype("<f4").tobytes())
    expected = {
        "made_with": INSTALLED,
        "seed": seed,
        "vocabulary": vocabulary,
        "prompt_ids": prompt,
        "greedy_ids": ids,
        "smallest_greedy_gap": round(gap, 5),
        "largest_logit": round(float(logits.abs().max()), 5),
        "float32_error": float(f"{error:.2g}"),
    }
    (folder / f"expected{suffix}.json").write_text(json.dumps(expected) + "\n")


def write(name, make, dtype, vocabulary, shard_size="1GB", change_config=None,
          change_model=None, prepare=None, store=None):
    """Makes one folder. `prepare` rounds the random weights to what the files will hold; `store`
    writes other files than save_pretrained does."""
    prepare = prepare or (lambda model: rounded(model, dtype))
    seed, model, prompt, ids, gap = candidate(make, prepare, vocabulary, PROMPT_TOKENS)
    logits = logits_of(model, prompt)
    error = largest_error(model, prompt, logits)
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    if change_model is not None:
        model = change_model(model)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if store is not None:
        store(model, folder)
    if change_config is not None:
        path = folder / "config.json"
        config = change_config(json.loads(path.read_text()))
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    write_expected(folder, "", seed, vocabulary, prompt, ids, gap, logits, error)
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: seed {seed}, gap {gap:.3f}, float32 error {error:.1e}, {size} bytes", flush=True)

#!/usr/bin/env python3
"""random_configurations.py BUILD [SECONDS [FAMILY...]]: random small models of every family
(drawn_families.py), made by Transformers, through BUILD/tests/golden_check: at 1 and 3 ranks the logits of
every position of a prompt within 1e-4 of the largest, and 64 greedy tokens, up to the first that is nearly
a tie. Families take turns until each had 60 or SECONDS (600) are over. Prints, as it happens, each disagreement
and whatever ends the run, with the configuration and how to repeat it. ANNULUS_TEST_SEED chooses the models.

Skipped (77) if torch and Transformers cannot be had from PyPI; they are kept in a folder of BUILD.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "server" / "http"))
PACKAGES = "torch==2.15.0 transformers==5.24.0"
MOST = 60  # of a family
SECONDS = 600
TOLERANCE = 1e-4
# A model whose own float32 logits are so far from float64 says nothing about others.
MOST_ERROR = 2e-5
BATCH = 20  # models that golden_check reads at once
CHECK_SECONDS = 300  # and longest it takes
TIE = 2e-3  # of the largest logit, between the best two


class Undecided(Exception):
    """Nothing can be compared with this model: a choice of experts at a prompt is nearly a tie, or
    roundings grow too much."""


def greedy(model, prompt, largest):
    """Tokens until one is nearly a tie, by the cache of keys."""
    import torch
    ids, cache = [], None
    step = torch.tensor([prompt])
    while len(ids) < 64:
        with torch.no_grad():
            out = model(step, past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        best = torch.topk(out.logits[0, -1], 2)
        if float(best.values[0] - best.values[1]) < TIE * largest:
            break
        ids.append(int(best.indices[0]))
        step = best.indices[:1][None]
    return ids


def decided(recipe, model, prompt, ids):
    """How many of these tokens come before a choice of experts that is nearly a tie."""
    gaps = recipe.router_gaps(model, prompt + ids) < recipe.SMALLEST_ROUTER_GAP
    unclear = gaps.nonzero()
    first = int(unclear[0]) if len(unclear) else len(gaps)
    if first < len(prompt):
        raise Undecided("a choice of experts")
    return ids[:max(0, first - len(prompt) + 1)]


def scale_embeddings(model, dtype):
    """As where the model runs in the dtype that it is stored in."""
    for name, buffer in model.named_buffers():
        if name.endswith(("embed_scale", "layer_scalar")):
            buffer.copy_(buffer.to(dtype).float())


def leave_out(folder, rng, config):
    """Writes config.json as older files are, or without keys that say what their absence says."""
    import recipe
    import transformers
    path = folder / "config.json"
    written = json.loads(path.read_text())
    flat = "rope_type" in written.get("rope_parameters", {})
    older = dict(written)
    if flat and "partial_rotary_factor" not in written["rope_parameters"] and rng.random() < 0.3:
        older = recipe.older_style(json.loads(path.read_text()))
    usual = type(config)().to_dict()
    for key in sorted(older):
        if key not in ("model_type", "architectures") and older[key] == usual.get(key) and rng.random() < 0.5:
            del older[key]
    path.write_text(json.dumps(older, indent=1))
    read = transformers.AutoConfig.from_pretrained(folder).to_dict()
    compared = {key for key in config.to_dict() if key not in ("transformers_version", "dtype", "architectures")}
    if any(read.get(key) != config.to_dict().get(key) for key in compared):
        path.write_text(json.dumps(written, indent=1))  # it would be another model


def make(folder, name, seed):
    import torch
    import drawn_families
    import families
    import recipe
    rng = random.Random(f"{name} {seed}")
    kind, config = drawn_families.FAMILIES[name](rng)
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    dtype = torch.float32 if name in drawn_families.FLOAT32_ONLY else rng.choice(drawn_families.DTYPES)
    torch.manual_seed(seed)
    model = kind(config).float().eval()
    recipe.randomize(model, rng.randrange(1 << 30))
    recipe.rounded(model, dtype)
    scale_embeddings(model, dtype)
    text = config.get_text_config()
    first = 7 if text is not config else 3  # before it the marks of images
    prompt = [rng.randrange(first, text.vocab_size) for _ in range(rng.choice([2, 17, 50, 90, 130]))]
    if text.rope_parameters.get("rope_type") == "longrope":
        families.frozen(model, len(prompt))
    logits = recipe.logits_of(model, prompt)
    largest = float(logits.abs().max())
    ids = decided(recipe, model, prompt, greedy(model, prompt, largest))
    error = recipe.largest_error(model, prompt, logits)
    if not error < MOST_ERROR:
        raise Undecided("roundings")
    model.to(dtype).save_pretrained(folder)
    leave_out(folder, rng, config)
    recipe.write_expected(folder, "", seed, text.vocab_size, prompt, ids, 0.0, logits, error)


def describe(folder, build):
    """How to make the model again, and its configuration if it has been written."""
    name, seed = folder.name.rsplit("-", 1)
    path = folder / "config.json"
    text = " ".join(path.read_text().split()) if path.exists() else "no config.json yet"
    return f"  repeat: random_configurations.py {build} 0 {name}={seed}\n  {text}"


def report(line, folder, build, counts):
    name = folder.name.rsplit("-", 1)[0]
    found = json.loads(line)
    counts[name]["compared"] += 1
    wrong = found.get("refused")
    if wrong is None and not found["error"] <= TOLERANCE:
        wrong = f"logits differ by {found['error']:.1e} of the largest"
    if wrong is None and not found["same"]:
        wrong = "greedy tokens differ"
    if wrong is None:
        return
    counts[name]["failed"] += 1
    print(f"{name}: {wrong}\n{describe(folder, build)}")


def check(program, folders, build, counts):
    asked = "".join(f"{folder}\n" for folder in folders)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            out, errors = process.communicate(asked, CHECK_SECONDS)
            ended = f"ended with {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            out, errors = process.communicate()
            ended = f"took more than {CHECK_SECONDS} s"
    lines = out.splitlines()
    for folder, line in zip(folders, lines):
        report(line, folder, build, counts)
    if process.returncode != 0 or len(lines) != len(folders):
        at = folders[min(len(lines), len(folders) - 1)]
        sys.exit(f"golden_check {ended} at {at.name}: {errors}\n{describe(at, build)}")


def draw(root, name, seed, build, counts):
    """The folder of a new model, or None if nothing can be compared with it."""
    folder = root / f"{name}-{seed}"
    try:
        make(folder, name, seed)
    except Undecided:
        counts[name]["undecided"] += 1
        return None
    except Exception:
        print(f"{name}: Transformers could not make or run the model\n{describe(folder, build)}")
        raise
    return folder


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    from clients_test import install
    build = pathlib.Path(sys.argv[1]).resolve()
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else SECONDS
    sys.stdout.reconfigure(line_buffering=True)  # also into a file: a run that is ended has said what it saw
    install(build, PACKAGES)
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers
    import drawn_families
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    seed = int(os.environ.get("ANNULUS_TEST_SEED", "1"))
    first = seed * 1000
    asked = sys.argv[3:]
    names = [one.split("=")[0] for one in asked] or list(drawn_families.FAMILIES)
    print(f"{len(names)} families; ANNULUS_TEST_SEED={seed}")
    seeds = {name: [first + i for i in range(MOST)] for name in names}
    seeds.update({one.split("=")[0]: [int(one.split("=")[1])] for one in asked if "=" in one})
    counts = {name: {"compared": 0, "failed": 0, "undecided": 0} for name in names}
    end = time.monotonic() + (seconds or 1e9)
    with tempfile.TemporaryDirectory() as root:
        batch = []
        for turn in range(MOST):
            for name in names:
                if turn >= len(seeds[name]) or (turn > 0 and time.monotonic() > end):
                    continue
                folder = draw(pathlib.Path(root), name, seeds[name][turn], build, counts)
                batch += [folder] if folder else []
                if len(batch) == BATCH:
                    check(build / "tests" / "golden_check", batch, build, counts)
                    for folder in batch:
                        shutil.rmtree(folder)
                    batch = []
        if batch:
            check(build / "tests" / "golden_check", batch, build, counts)
    for name, count in counts.items():
        print(f"{name}: {count['compared']} compared, {count['failed']} failed, {count['undecided']} undecided")
    sys.exit(any(count["failed"] or not count["compared"] for count in counts.values()))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""evaluators_test.py BUILD: lm-eval gets from annulusd, as from a completions server, the log-likelihoods that it gets
from Transformers, with a tokenizer and tasks of this machine; guidellm measures annulusd over OpenAI's two older APIs. Both are
called as server/CLIENTS.md says.

Skipped (77) if a package cannot be had from PyPI, or without the test data (ANNULUS_TEST_DATA). The packages are kept
in a folder of BUILD: one for both, since each brings torch, some gigabytes.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from clients_test import ROOT, Daemon, check, install, skip
from examples import words_of

PACKAGES = "lm-eval[hf,api]==0.4.13 guidellm==0.8.1"
# Each task asks for another kind of log-likelihood: of endings of a text, and of a whole text, in pieces of the context.
TASKS = {
    "endings": {"output_type": "multiple_choice", "doc_to_text": "{{text}}", "doc_to_choice": "{{endings}}",
                "doc_to_target": 0, "metric_list": [{"metric": "acc"}]},
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{story}}",
              "metric_list": [{"metric": "bits_per_byte"}]},
}
ENDINGS = ["They played all day.", "The dog ran to the park.", "No one knew why, but it was so."]
CONTEXT = 480  # tokens of a piece, of the 512 of the model
TOLERANCE = 1e-3  # of a log-likelihood, both in float32


def write_tasks(folder, data):
    book = (data / "texts" / "war_and_peace.txt").read_text()
    pieces = [book[at:at + 300] for at in range(20_000, 26_000, 1000)]
    lines = [json.dumps({"text": "Once upon a time, there was a " + piece, "endings": ENDINGS, "story": piece * (i + 1)})
             for i, piece in enumerate(pieces)]
    (folder / "documents.jsonl").write_text("\n".join(lines) + "\n")
    for name, task in TASKS.items():
        source = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "documents.jsonl")}},
                  "test_split": "test", "task": name, "metadata": {"version": 1}}
        (folder / f"{name}.yaml").write_text(json.dumps({**source, **task}))  # JSON is YAML


def run(home, packages, *words):
    """A program of a package, which finds nothing but what is on this machine."""
    variables = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(packages), "HF_HUB_OFFLINE": "1",
                 "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1",
                 "OPENAI_API_KEY": "none"}
    done = subprocess.run([sys.executable, "-m", *words], env=variables, cwd=home, timeout=1200)
    check(done.returncode == 0, f"{words[0]} failed")


def evaluate(home, packages, name, arguments):
    """For each task, of each document, the log-likelihoods of its endings, and whether each is the likeliest text."""
    tasks, folder = pathlib.Path(home) / "tasks", pathlib.Path(home) / name
    run(home, packages, "lm_eval", "--model", name, "--model_args", arguments, "--tasks", ",".join(TASKS),
        "--include_path", str(tasks), "--device", "cpu", "--batch_size", "1", "--output_path", str(folder),
        "--log_samples")
    found = {}
    for task in TASKS:
        [path] = folder.glob(f"**/samples_{task}_*.jsonl")
        samples = sorted((json.loads(line) for line in path.read_text().splitlines()), key=lambda one: one["doc_id"])
        found[task] = [sample["resps"] for sample in samples]
    return found


def numbers(value):
    """The numbers in nested lists, in order."""
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    words = {"True": 1.0, "False": 0.0}
    return [words[str(value)] if str(value) in words else float(value)]


def compare(theirs, ours):
    for task in TASKS:
        check(len(theirs[task]) == len(ours[task]) > 0, f"{task}: {len(theirs[task])}, {len(ours[task])}")
        worst = 0
        for one, other in zip(theirs[task], ours[task]):
            one, other = numbers(one), numbers(other)
            check(len(one) == len(other), f"{task}: {one} {other}")
            worst = max([worst, *(abs(a - b) for a, b in zip(one, other))])
        print(f"evaluators_test: {task}: {len(ours[task])} documents, log-likelihoods within {worst:.1e}", flush=True)
        check(worst <= TOLERANCE, f"{task}: {theirs[task]} {ours[task]}")


def measure(home, packages, model, url):
    root = url.removesuffix("/v1")
    for route in ("/v1/completions", "/v1/chat/completions"):
        report = pathlib.Path(home) / "report.json"
        words = " ".join(words_of("guidellm", root)).replace("/v1/chat/completions", route)
        words = words.replace("FOLDER", str(model)).replace("report.json", str(report))
        run(home, packages, "guidellm", *words.split(), "--disable-console-interactive")
        benchmark = json.loads(report.read_text())["benchmarks"][0]
        requests = benchmark["requests"]
        check(len(requests["successful"]) == 6 and not requests["errored"], f"{route}: {requests}")
        for request in requests["successful"]:
            check(request["output_tokens"] == 16, f"{route}: {request}")
        print(f"evaluators_test: guidellm measures {route}", flush=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).absolute()
    data = pathlib.Path(os.environ.get("ANNULUS_TEST_DATA", ROOT.parent / "shared" / "data")).absolute()
    model = data / "models" / "stories260K"
    if not model.is_dir():
        skip(f"{data} has no models")
    install(build, PACKAGES)
    packages = build / "python" / PACKAGES
    with tempfile.TemporaryDirectory() as home, Daemon(build, model) as daemon:
        (pathlib.Path(home) / "tasks").mkdir()
        write_tasks(pathlib.Path(home) / "tasks", data)
        words = words_of("lm-eval", daemon.url.removesuffix("/v1"))
        arguments = words[words.index("--model_args") + 1].replace("FOLDER", str(model))
        check(f"max_length={CONTEXT + 2}" in arguments, arguments)  # two of them are not for the text
        served = evaluate(home, packages, "local-completions", arguments)
        compare(evaluate(home, packages, "hf", f"pretrained={model},dtype=float32,add_bos_token=True,max_length={CONTEXT}"),
                served)
        measure(home, packages, model, daemon.url)


main()

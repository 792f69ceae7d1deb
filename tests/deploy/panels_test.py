#!/usr/bin/env python3
"""panels_test.py BUILD [PICTURES]: a real Prometheus scrapes a daemon under load, at one and at four ranks,
and every query of every panel and recording rule returns a number.

PICTURES/RANKS/ gets an SVG of each dashboard, drawn from those answers. Skipped (77) without prometheus.
"""

import concurrent.futures
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

import daemon
import monitors

sys.path.append(str(monitors.MONITORING))
import draw_dashboards as drawing
LOAD_SECONDS = 25
REFUSED = 72  # how annulus ends after RESOURCE_EXHAUSTED
RATE_SECONDS = 15  # for $__rate_interval; scrapes come every second


def start_prometheus(folder, targets):
    rules = (monitors.MONITORING / "rules.yaml").read_text()
    for window in ("5m", "30m", "1h", "6h"):  # nothing is that old here
        rules = rules.replace(f"[{window}]", f"[{RATE_SECONDS}s]")
    (folder / "rules.yaml").write_text(rules)
    configuration = folder / "prometheus.yml"
    configuration.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [rules.yaml]\n"
        "scrape_configs:\n- job_name: annulus\n"
        f"  static_configs: [{{targets: {targets}}}]\n")
    return monitors.start_prometheus(configuration)


def load(build, address, folder):
    """Documents asked twice, plain completions, sparse requests, errors: for LOAD_SECONDS."""
    annulus = [f"{build}/annulus"]
    server = ["--server", address]
    words = [f"w{n}" for n in range(300)]
    document = folder / "document.txt"
    document.write_text(" ".join(random.choices(words, k=3000)))
    kinds = [
        ["ask", str(document), "w7 w8?", "--max-tokens", "8"],
        ["complete", " ".join(words[:200]), "--max-tokens", "16"],
        ["complete", "w1 w2", "--document", str(document), "--max-tokens", "4", "--attention", "strided"],
        # A prompt that is new each time, so that its blocks must be chosen.
        ["complete", None, "--max-tokens", "4", "--attention", "adaptive", "--coverage", "0.9"],
        ["complete", "x", "--model", "another"],
    ]
    ends = [0, 0, 0, 0, 69]  # the last one asks for what is not there: NOT_FOUND
    until = time.monotonic() + LOAD_SECONDS

    def work(lane):
        turn = lane
        while time.monotonic() < until:
            kind = turn % len(kinds)
            new = " ".join(random.choices(words, k=2000))
            ended = subprocess.run(annulus + [word or new for word in kinds[kind]] + server, timeout=120,
                                   check=False, env=daemon.environment(), capture_output=True)
            if ended.returncode != ends[kind]:
                sys.exit(f"{kinds[kind]} ended with {ended.returncode}: {ended.stderr.decode()}")
            turn += 1

    with concurrent.futures.ThreadPoolExecutor(2) as lanes:
        list(lanes.map(work, range(2)))


def overload(build, address):
    """More at once, for LOAD_SECONDS, than a daemon takes that runs one request and lets one wait."""
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        calls = [subprocess.Popen([f"{build}/annulus", "complete", "x", "--max-tokens", "1000", "--server", address],
                                  env=daemon.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                 for _ in range(6)]
        ends = {call.wait(timeout=120) for call in calls}
        if not ends <= {0, REFUSED}:
            sys.exit(f"calls beyond the limit ended with {ends}")


def check(build, ranks, folder, pictures):
    with daemon.Daemon(build, "--ranks", str(ranks), "--tokens-per-rank", "512",
                       "--kv-memory", "256MiB", "--documents", str(folder / "documents")) as served, \
            daemon.Daemon(build, "--kv-memory", "64MiB", "--max-running", "1", "--max-waiting", "1") as full, \
            daemon.Daemon(build, "--kv-memory", "64MiB", *daemon.certificate(folder)) as certified, \
            daemon.Ring(build) as ring:
        process, address = start_prometheus(folder, [served.metrics, full.metrics, certified.metrics, *ring.metrics])
        with daemon.stopping(process), concurrent.futures.ThreadPoolExecutor(1) as beside:
            too_much = beside.submit(overload, build, full.address)
            load(build, served.address, folder)
            too_much.result()
            _, empty = drawing.draw(address, pictures / str(ranks), LOAD_SECONDS, 1, RATE_SECONDS)
            for line in (monitors.MONITORING / "rules.yaml").read_text().splitlines():
                if "- record: " not in line:
                    continue
                rule = line.split(": ")[1]
                if not drawing.numbers(drawing.ask(address, rule, LOAD_SECONDS, 1)):
                    empty.append(rule)
    return [f"{ranks} ranks: {query}" for query in empty]


def main():
    if not shutil.which("prometheus"):
        print("no prometheus: nothing was tried")
        sys.exit(daemon.SKIPPED)
    empty = []
    for ranks in (1, 4):
        with tempfile.TemporaryDirectory() as folder:
            pictures = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else folder)
            empty += check(sys.argv[1], ranks, pathlib.Path(folder), pictures)
    print("\n".join(["without data:", *empty]) if empty else "every query returned numbers")
    sys.exit(1 if empty else 0)


main()

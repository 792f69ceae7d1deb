#!/usr/bin/env python3
"""masks_beside_llguidance_test.py BUILD: along 10,000 random walks over the vocabularies of Qwen3, Llama 3, Mistral and
GPT-2, masks of constraints are those of the Python package llguidance, but for the differences that
bench/grammar/yardstick.py explains.

Skipped (77) if the packages cannot be had from PyPI, or without the test data (ANNULUS_TEST_DATA). The packages are
kept in folders of BUILD.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "server" / "http"))

from clients_test import install, skip  # noqa: E402

PACKAGES = ("llguidance==1.9.1", "numpy==2.4.6")
TOKENIZERS = "qwen3,llama3,mistral-v3,gpt2"
WALKS = 360  # for each of seven constraints and four vocabularies


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).absolute()
    data = pathlib.Path(os.environ.get("ANNULUS_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not (data / "tokenizers").is_dir():
        skip(f"{data} has no tokenizers")
    for package in PACKAGES:
        install(build, package)
    folders = os.pathsep.join(str(build / "python" / package) for package in PACKAGES)
    sys.exit(subprocess.run([sys.executable, ROOT / "bench" / "grammar" / "yardstick.py", build / "grammar-lab", data,
                             "--tokenizers", TOKENIZERS, "--walks", str(WALKS), "--rounds", "1", "--seed",
                             os.environ.get("ANNULUS_TEST_SEED", "1")],
                            env={**os.environ, "PYTHONPATH": folders}).returncode)


main()

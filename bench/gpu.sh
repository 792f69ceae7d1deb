#!/usr/bin/env bash
# Times and checks a GPU in one call of under 9 minutes, whatever fails or hangs: bash bench/gpu.sh [--cells] FOLDER [PACKAGE]
# PACKAGE (default build/gpu) is what bench/gpu_pack.sh made; a build folder with the same programs
# does too. PyTorch's attention is timed beside, where python3 has PyTorch ($PYTHON names another).
# FOLDER gets rows as JSON (*.jsonl), what the programs said (all.log) and gpu-CARD.md, which is also
# printed last: what failed, then a short table. Ends with 0 where nothing failed.
# --cells, in under 5 minutes: a few short tests, then only the rows that are far from the card's limit,
# and old and new ways of computing by turns where a new one waits for its times. The table is cells-CARD.md.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
table=gpu
if [[ ${1-} == --cells ]]; then
  table=cells
  shift
fi
if (($# < 1 || $# > 2)) || [[ $1 == -* ]]; then
  sed -n '2,8s/^# //p' "$0"
  exit 2
fi
package=$(realpath -m "${2:-$root/build/gpu}")
if [[ ! -x $package/gpu-lab ]]; then
  echo "gpu.sh: $package has no gpu-lab; where the sources can be built: bash bench/gpu_pack.sh $package" >&2
  exit 2
fi
mkdir -p "$1" && cd "$1" && rm -f all.log ./*.jsonl "$table"-*.md || exit 2
python=${PYTHON:-python3}
export PATH=$PATH:/usr/local/cuda/bin:/usr/local/nvidia/bin
export ANNULUS_SOURCE_DIR=$root  # of the files that tests read
test=$package/tests/kernels_gpu_test
built=$(cat "$package/built_from.txt" 2>/dev/null || git -C "$root" describe --always --dirty)
failures=() remarks=()

# The package's libraries; cuBLASLt and NCCL where CUDA or PyTorch's packages have them; and what the
# loader was told already: in containers that may be the only way to the driver.
site=$(timeout 10 "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)
libraries=$package/lib
for path in "$site"/nvidia/*/lib /usr/local/cuda/lib64; do
  if [[ -d $path ]]; then libraries+=:$path; fi
done
libraries+=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if [[ -d /usr/local/nvidia/lib64 ]]; then libraries+=:/usr/local/nvidia/lib64; fi

# step NAME SECONDS COMMAND...: runs it for at most so long. Its last words are kept where it fails.
step() {
  local status=0 log why=
  log=$(mktemp)
  printf '== %s %s\n' "$(date +%T)" "$1" | tee -a all.log >&2
  timeout -k 5 "$2" "${@:3}" >"$log" 2>&1 || status=$?
  cat "$log" >>all.log
  if ((status != 0)); then
    if ((status == 124)); then why="out of its $2 s"; fi
    failures+=("$1: ${why:-exit $status}: $(grep . "$log" | tail -1 | cut -c -300)")
  fi
  rm "$log"
}

# ours NAME SECONDS PROGRAM...: the same with those libraries.
ours() { step "$1" "$2" env LD_LIBRARY_PATH="$libraries" "${@:3}"; }

# cases NAME SECONDS PROGRAM: every test of a program.
cases() {
  local line lines log
  log=$(mktemp)
  printf '== %s %s\n' "$(date +%T)" "$1" | tee -a all.log >&2
  mapfile -t lines < <(LD_LIBRARY_PATH=$libraries bash "$root/bench/gpu/cases.sh" "$3" "$2" "$log")
  remarks+=("$1: ${lines[0]}")
  for line in "${lines[@]:1}"; do failures+=("$1: $line"); done
  cat "$log" >>all.log
  rm "$log"
}

# What is known of the card: field NAME.
field() { timeout 10 nvidia-smi --query-gpu="$1" --format=csv,noheader 2>/dev/null | head -1; }

finish() {
  trap - EXIT
  local card driver own='products by own kernels: '
  card=$(field name)
  card=${card:-no GPU}
  driver=$(field driver_version)
  if grep -q "$own" all.log; then
    failures+=("cuBLASLt was NOT FOUND, so products are by own kernels: $(sed -n "s/.*$own//p" all.log | head -1)")
  fi
  {
    printf '# %s\n\n' "$card"
    printf -- '- %s\n' "$(date -u +%F), driver: ${driver:-none}" "$built" "${remarks[@]}"
    printf '\nfailed: %s\n' ${#failures[@]}
    if ((${#failures[@]} > 0)); then printf -- '- %s\n' "${failures[@]}" | head -40; fi
    echo
    timeout 10 "$python" "$root/bench/gpu/table.py" ./*.jsonl || cat ./*.jsonl
    if [[ -z $(cat ./*.jsonl) ]]; then echo 'Nothing was measured.'; fi
  } 2>/dev/null | tee "$table-$(tr -cs '[:alnum:]' - <<<"$card" | tr '[:upper:]' '[:lower:]' | sed 's/^nvidia-//; s/-$//').md"
  exit $((${#failures[@]} > 0))
}
trap finish EXIT
trap exit INT TERM

missing=$(LD_LIBRARY_PATH=$libraries ldd "$package"/gpu-* "$package"/tests/*_gpu_test 2>&1 | grep 'not found' | sort -u)
if [[ -n $missing ]]; then
  failures+=("programs do not start here, make them by bench/gpu_pack.sh: ${missing//$'\n'/; }")
fi

# model NAME SECONDS OPTION...: a whole model in the shape of Llama 3.1 8B, or $random.
model() {
  [[ ! -x $package/gpu-model ]] || ours "$1" "$2" "$package/gpu-model" --json-file model.jsonl \
    --random "$root/bench/configs/${random:-llama-3.1-8b}.json" "${@:3}"
}
# How long ranks wait for the host between steps shows most where a step is short.
streams() {
  random=qwen2.5-0.5b model 'streams' 40 --ranks 1 --depth 1 --streams 1,64 --generate 128 --repeat 3
}

# In this order: whether anything works, figures, checks. All together at most 520 s, the time that `timeout` adds included;
# with --cells 295 s.
ours 'smoke' 20 "$test" --gtest_filter='*MergeTest*:*OneKeyIsCopied*'
if [[ $table == cells ]]; then
  ours 'cells' 175 "$package/gpu-lab" --tables cuda/sm90 --tokens 16384 \
    --ops copy,linear,prefill,prefill_trial,pairs_trial,linear_trial,gate_trial,down_trial,fp8_trial,overlap_trial,step_trial,wgmma_trial,prefill_fp8_trial cells.jsonl
  streams
  exit
fi
ours 'ops' 60 "$package/gpu-lab" ops.jsonl
model 'model' 70
model 'model in fp8' 40 --ranks 1 --weights-dtype fp8_e4m3 --activations fp8_e4m3 \
  --prompt-tokens 131072 --depth 131072
model 'a million tokens' 80 --ranks 1 --kv-dtype fp8_e4m3 --attention window:window=4096,sinks=64 \
  --prompt-tokens 1048576 --depth 1048576
streams
if timeout 10 "$python" -c 'import importlib.util as i; exit(not i.find_spec("torch"))' 2>/dev/null; then
  step 'sdpa' 40 bash -c '"$0" "$1" >sdpa.jsonl' "$python" "$root/bench/gpu/sdpa.py"
else
  remarks+=("no PyTorch in $python: nothing to compare with")
fi
cases 'kernels' 75 "$test"
cases 'engine' 35 "$package/tests/engine_gpu_test"
if command -v compute-sanitizer >/dev/null; then
  # Without prefill of 9.0: why its reports are false, see kernels/cuda/README.md.
  ours 'racecheck' 25 compute-sanitizer --tool racecheck --error-exitcode 9 \
    --kernel-name-exclude kernel_substring=24HopperAttentionArguments "$test" \
    --gtest_filter='*AttentionTest.OneKeyIsCopied*:*AttentionTest.MovingMaximum*:*MergeTest*'
fi

#!/usr/bin/env bash
# Tests bench/gpu.sh on programs that only pretend: whatever fails or ends, what was
# measured is printed last, and what failed above it.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
package=$folder/package
mkdir -p "$package/tests" "$package/lib"

# program NAME: what it does is read from standard input.
program() {
  { echo '#!/usr/bin/env bash'; cat; } >"$package/$1"
  chmod +x "$package/$1"
}

fail() {
  printf 'gpu_script_test: %s; the output was:\n%s\n' "$*" "$output" >&2
  exit 1
}

# Four tests, one of them with parameters; $WEAK is what becomes of one.
program tests/kernels_gpu_test <<'END'
if [[ $* == *list_tests* ]]; then
  printf 'a GPU, products by own kernels: no library\nSuite.\n  Good\n  Weak\nAll/Cases.\n  Fine/0  # GetParam() = 1\n  Fine/1  # GetParam() = 2\n'
  exit
fi
for test in Suite.Good Suite.Weak All/Cases.Fine/0 All/Cases.Fine/1; do
  [[ $test == ${1#--gtest_filter=} && :$LD_LIBRARY_PATH: == *:/the/driver:* ]] || continue
  echo "[ RUN      ] $test"
  if [[ $test == Suite.Weak && ${WEAK-} == fails ]]; then echo "[  FAILED  ] $test (1 ms)"; exit 1; fi
  if [[ $test == Suite.Weak && ${WEAK-} == dies ]]; then kill -9 $$; fi
  echo "[       OK ] $test (1 ms)"
done
END
cp "$package/tests/kernels_gpu_test" "$package/tests/engine_gpu_test"
row='{"kernels":"cuda/sm90","op":"copy","dtype":"","size":8,"seconds":0.002,"gb_per_second":4321}'
program gpu-lab <<END
echo '$row' >"\$1"
[[ -z \${WEAK-} ]] || kill -9 \$\$
END

# What the loader was told must reach every program.
export LD_LIBRARY_PATH=/the/driver

# run STATUS [--cells]: the script must end with it.
run() {
  local status name=gpu
  if [[ ${2-} == --cells ]]; then name=cells; fi
  output=$(PYTHON=${PYTHON-$folder/none} bash "$root/bench/gpu.sh" "${@:2}" "$folder/out" "$package" 2>/dev/null)
  status=$?
  ((status == $1)) || fail "ended with $status, not $1"
  cmp -s <(echo "$output") "$folder/out/$name"-*.md || fail "$name-*.md is not what was printed"
}
has() { grep -qF -- "$1" <<<"$output" || fail "no '$1'"; }

# Own kernels instead of the library are no success, however many tests pass.
run 1
has 'kernels: 4 of 4 tests passed, 0 were skipped'
has 'failed: 1'
has 'cuBLASLt was NOT FOUND, so products are by own kernels: no library'
tail -1 <<<"$output" | grep -qF 4321 || fail 'the figures are not last'
sed -i 's/, products by own kernels: no library//' "$package"/tests/*
run 0
has 'failed: 0'

WEAK=fails run 1
has 'kernels: 3 of 4 tests passed, 0 were skipped'
has '- engine: Suite.Weak failed'
has '- ops: exit 137'
tail -1 <<<"$output" | grep -qF 4321 || fail 'the figures are not last'
WEAK=dies run 1
has '- kernels: Suite.Weak did not end'

program tests/engine_gpu_test <<<'echo "skipped: there is no GPU"; exit 77'
run 1
has '- engine: skipped: there is no GPU'

program gpu-lab <<<'echo "gpu-lab: there is no GPU" >&2; exit 1'
run 1
has '- ops: exit 1: gpu-lab: there is no GPU'
tail -1 <<<"$output" | grep -qF 'Nothing was measured.' || fail 'no word of missing figures'

if command -v python3 >/dev/null; then
  prefill='{"kernels":"cuda/sm90","op":"prefill","dtype":"bf16","size":8,"seconds":0.002,"tflops":395}'
  matmul='{"op":"matmul","dtype":"bf16","size":8,"seconds":0.002,"tflops":790}'
  step='{"kernels":"cuda/sm90","op":"step","dtype":"bf16","size":8,"seconds":0.002,"host_seconds":0.003,"ratio_to_single":1}'
  program gpu-lab <<<"printf '%s\\n' '$row' '$prefill' '$matmul' '$step' >\"\$1\""
  PYTHON=python3 run 1
  has '4321 GB/s'
  has '0.50 of matmul'
  has '3.000 ms of the host'
fi

# --cells: a few tests, then the rows of the cells, in one table. Programs write down how they are
# called, and `timeout` how long each may take.
real=$(command -v timeout)
said=$folder/said
mkdir "$folder/bin"
program ../bin/timeout <<END
echo "\$*" >>'$folder/limits'
exec '$real' "\$@"
END
cell='{"kernels":"cuda/sm90","op":"prefill_trial","dtype":"bf16","size":8,"seconds":0.002,"tflops":395,"old_seconds":0.004,"ratio_to_old":0.5,"other_bits":0.01,"bf16_seconds":0.003,"error":0.04}'
for name in tests/kernels_gpu_test gpu-lab gpu-model; do
  program "$name" <<END
echo "$name \$*" >>'$said'
[[ $name != "\${WEAK-}" ]] || { echo weak; exit 3; }
[[ $name != gpu-lab ]] || echo '$cell' >"\${@: -1}"
END
done
export PATH=$folder/bin:$PATH
run 0 --cells
has 'failed: 0'
has '"ratio_to_old":0.5'
(($(wc -l <"$said") == 3)) || fail "not one call of each program: $(cat "$said")"
grep -q '^tests/kernels_gpu_test --gtest_filter=[^ ]*MergeTest' "$said" || fail 'no short tests'
grep -q '^gpu-lab .*--ops [^ ]*prefill_trial,pairs_trial,linear_trial,gate_trial,down_trial,fp8_trial,overlap_trial,step_trial,wgmma_trial,prefill_fp8_trial ' "$said" || fail 'gpu-lab was not asked for what is on trial'
grep -q '^gpu-model .*--streams 1,64 ' "$said" || fail 'no streams'
seconds=$(awk '{s += $1 == "-k" ? $2 + $3 : $1} END {print s}' "$folder/limits")
((seconds > 60 && seconds <= 300)) || fail "the steps may take $seconds s"
for weak in tests/kernels_gpu_test gpu-lab gpu-model; do
  WEAK=$weak run 1 --cells
  has 'failed: 1'
  has ': exit 3: weak'
done
if command -v python3 >/dev/null; then
  PYTHON=python3 run 0 --cells
  has '0.500 of the old way'
  has '3.000 ms of bf16, 0.0400 off'
  has '4.000 ms of the old way, 395 TFLOP/s'
  has '1.000% other bits'
fi
echo passed

#!/usr/bin/env bash
# Sets up, builds and runs every test: bash tests/run.sh [--quick]
#   --quick   only the checks of the sources and the Release build, no sanitizers
# Build folders: build (Release), build/asan, build/tsan; another run rebuilds what has changed.
# The last line says what passed, failed and was skipped; the exit code is 0 if nothing failed.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
logs=$build/test-logs
passed=0 failed=0 skipped=0
times=()

# The sanitizers stop at their first report; a leak is one too.
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1
export UBSAN_OPTIONS=print_stacktrace=1
# Debian's gRPC, Abseil and protobuf are not instrumented: what their functions read and write would
# be reported without the locks that guard it. What our own code touches is watched all the same, and
# tests/support/tsan tells what gRPC orders. Sockets order nothing here: by default every write to
# one comes before every later read of any, which would hide races between calls.
TSAN_OPTIONS=ignore_noninstrumented_modules=1:io_sync=0:second_deadlock_stack=1
export TSAN_OPTIONS=$TSAN_OPTIONS:suppressions=$root/tests/tsan.supp
# Programs that setup.sh unpacked, for example prometheus.
export PATH=$PATH:$build/tools/usr/bin

# count NAME STATUS: counts one check by its exit status.
count() {
  case $2 in
    0) passed=$((passed + 1)) ;;
    77)
      skipped=$((skipped + 1))
      echo "SKIPPED: $1"
      ;;
    *)
      failed=$((failed + 1))
      echo "FAILED: $1"
      ;;
  esac
}

# phase NAME COMMAND...: runs a phase, which counts its own results, and notes its time.
phase() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
}

check_sources() {
  local check status
  for check in layers layers_test wording wording_test docs format; do
    status=0
    bash "$root/tests/checks/$check.sh" || status=$?
    count "tests/checks/$check.sh" "$status"
  done
}

# run_suite FOLDER TARGET [CMAKE-OPTION...]: builds the target and runs its tests.
run_suite() {
  local folder=$1 target=$2
  shift 2
  if ! bash "$root/deploy/build.sh" "$folder" "$target" -- -DANNULUS_BUILD_TESTS=ON "$@"; then
    count "the build of $folder" 1
    return
  fi
  local select=()
  if [[ $target == threaded_tests ]]; then select=(--label-regex '^threaded$'); fi
  run_ctest "$folder" "${select[@]}"
}

run_ctest() {
  local folder=$1 log runner=() status=0 result='^ *[0-9]+/[0-9]+ Test +#[0-9]+: '
  shift
  log=$logs/$(basename "$folder").log
  # The thread sanitizer of GCC 12 does not start where the kernel spreads addresses widely.
  if [[ $folder == */tsan ]] && setarch -R true 2>/dev/null; then runner=(setarch -R); fi
  "${runner[@]}" ctest --test-dir "$folder" --parallel "$(nproc)" "$@" \
    --output-on-failure --no-tests=error >"$log" 2>&1 || status=$?

  local all good left
  all=$(grep -cE "$result" "$log" || true)
  good=$(grep -cE "$result.* Passed +[0-9.]+ sec" "$log" || true)
  left=$(grep -cE "$result.*(\*\*\*Skipped|\(Disabled\)) +[0-9.]+ sec" "$log" || true)
  echo "$good of $all tests passed, $left skipped (all output: $log)"
  passed=$((passed + good)) skipped=$((skipped + left)) failed=$((failed + all - good - left))
  if ((status != 0)); then
    # Everything but the lines of tests that started, passed or were skipped.
    grep -vE "^ *Start +[0-9]+: |$result.*( Passed |\*\*\*Skipped)" "$log" || true
    if ((all == good + left)); then count "ctest in $folder" 1; fi
  fi
}

# check NAME COMMAND...: one check, whose output is a log of its name.
check() {
  local name=$1 status=0
  shift
  "$@" >"$logs/$name.log" 2>&1 || status=$?
  count "$name (all output: $logs/$name.log)" "$status"
}

# The daemon on the GPU, and what compute-sanitizer finds in the kernels; the tests of kernels and of
# the engine on a GPU are part of the suite above.
check_gpu() {
  local tool filter
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo 'no GPU: nothing here ran on one'
    return
  fi
  check serving_on_gpu env ANNULUS_TEST_DEVICE=cuda "$build/tests/integration_test" \
    --gtest_filter='-*Memory*'
  check stress_on_gpu env ANNULUS_TEST_DEVICE=cuda "$build/tests/stress_test"
  # A racecheck of everything takes hours.
  for tool in memcheck racecheck; do
    filter='*'
    if [[ $tool == racecheck ]]; then filter=*OneKeyIsCopied*:*MovingMaximum*:*MergeTest*; fi
    if command -v compute-sanitizer >/dev/null; then
      check "$tool" timeout 3600 compute-sanitizer --tool "$tool" --error-exitcode 9 \
        "$build/tests/kernels_gpu_test" --gtest_filter="$filter"
    else
      count "$tool: there is no compute-sanitizer" 77
    fi
  done
}

main() {
  local sanitizers=yes architectures
  case ${1-} in
    '') ;;
    --quick) sanitizers= ;;
    *)
      sed -n '2,5s/^# //p' "$0"
      exit 2
      ;;
  esac
  cd "$root"
  mkdir -p "$logs"

  phase 'set up' bash deploy/setup.sh build test
  phase 'checks of the sources' check_sources
  # Kernels for GPUs are built for the GPU of this machine, else for both default architectures.
  architectures=$(bash deploy/gpu_architectures.sh)
  phase 'Release' run_suite "$build" all -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_ARCHITECTURES="$architectures"
  phase 'GPU' check_gpu
  if [[ -n $sanitizers ]]; then
    phase 'address and undefined-behaviour sanitizers' run_suite "$build/asan" all_tests \
      -DCMAKE_BUILD_TYPE=Release -DANNULUS_SANITIZE=address,undefined
    phase 'thread sanitizer' run_suite "$build/tsan" threaded_tests \
      -DCMAKE_BUILD_TYPE=Release -DANNULUS_SANITIZE=thread
  fi

  echo '== time'
  printf '%s\n' "${times[@]}"
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}

main "$@"

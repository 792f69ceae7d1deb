#!/usr/bin/env bash
# Sets up, builds and runs every test: bash tests/run.sh [--quick] [--only FOLDER]
#   --quick        only the checks of the sources and the Release build, no sanitizers
#   --only FOLDER  of all programs those that a change in FOLDER touches, for example engine/memory; of
#                  slow ones a part, another every day (BUILDS.md)
# Build folders: build (Release), build/asan, build/tsan; another run rebuilds what has changed.
# The last line says what passed, failed and was skipped; the exit code is 0 if nothing failed.
set -euo pipefail

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
logs=$build/test-logs
only=
anything=  # whether a build has a test that is touched
passed=0 failed=0 skipped=0
times=()
temporary=  # the folder of the tests that run
trap 'if [[ -n $temporary ]]; then rm -rf "$temporary"; fi' EXIT
# Otherwise only what runs would be ended, and the next phase would start.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# No test may take longer, by the clock or by the processor, whichever is less: a machine that does
# other things too makes it late by the clock alone. Longer ones are for tests/nightly.sh.
most_seconds=60

source "$root/tests/support/run/environment.sh"
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
  local name=$1 start=$SECONDS status=0
  shift
  echo "== $name"
  "$@" || status=$?
  times+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
  return "$status"
}

check_sources() {
  local check status
  for check in layers layers_test wording wording_test sleeps sleeps_test registered registered_test cases_test options options_test docs docs_test format \
    available_memory_test; do
    status=0
    bash "$root/tests/checks/$check.sh" || status=$?
    count "tests/checks/$check.sh" "$status"
  done
  status=0
  bash "$root/tests/faults.sh" --check || status=$?
  count 'tests/faults.sh --check' "$status"
}

# The model of the tests that need a real one, which are skipped where it cannot be had.
fetch_small_model() {
  local status=0
  bash deploy/fetch_model.sh "$build/models" || status=$?
  if ((status == 3)); then status=77; fi
  count 'the small model, by deploy/fetch_model.sh' "$status"
}

# Of `--only`: the programs that this build runs and that a change in the folder touches, or with
# `scripts` the tests that are scripts, which only Release has.
touched() {
  awk -v folder="$only" -v only="$1/tests/${2-touches}.txt" -f "$root/tests/support/run/touched.awk" \
    "$1/tests/touches.txt" "$build/tests/scripts.txt"
}

# Of `--only`: what is to be built.
touched_targets() {
  touched "$1"
  grep --word-regexp --file=<(touched "$1" scripts) "$1/tests/scripts.txt" | grep --only-matching --perl-regexp '\+\K\S+'
}

# Of `--only`: the entries of ctest to run.
touched_entries() {
  touched "$1" scripts
  awk -v folder="$only" -v seed="$ANNULUS_TEST_SEED" -f "$root/tests/support/run/entries.awk" \
    list=made_of "$1/tests/touches.txt" list=touched <(touched "$1") \
    list=slow <(ctest --test-dir "$1" --show-only -L slow) list=all <(ctest --test-dir "$1" --show-only)
}

# build_suite FOLDER NAME TARGET CMAKE-OPTION...: builds the target, or what --only asks for.
build_suite() {
  local folder=$1 name=$2 targets=("$3")
  shift 3
  set -- -- -DANNULUS_BUILD_TESTS=ON -DCMAKE_BUILD_TYPE=Release "$@"
  if [[ -n $only ]]; then
    # By itself this target only makes CMake write touches.txt.
    bash "$root/deploy/build.sh" "$folder" touches "$@" || return
    if [[ -n $(touched "$folder")$(touched "$folder" scripts) ]]; then anything=yes; fi
    mapfile -t targets < <(touched_targets "$folder" | sort --unique)
    if ((${#targets[@]} == 0)); then return; fi
    echo "touched by $only: ${targets[*]}"
  fi
  bash "$root/deploy/build.sh" "$folder" "${targets[@]}" "$@" || return
  if [[ -z $only ]]; then
    check "touches-$name" bash "$root/tests/checks/touches.sh" "$folder"
  fi
}

# run_suite FOLDER NAME TARGET [CMAKE-OPTION...]: builds and runs tests.
run_suite() {
  local folder=$1 name=$2
  if phase "$name: build" build_suite "$@"; then
    phase "$name: tests" run_ctest "$folder" "$name"
  else
    count "the build of $folder" 1
  fi
}

# run_ctest FOLDER NAME: runs the tests in a temporary folder, which they must leave as it was.
run_ctest() {
  local folder=$1 name=$2 log=$logs/$2.log record=$logs/$2.cases selection=() runner=() status=0
  local entries programs left one
  if [[ -n $only ]]; then
    entries=$(touched_entries "$folder" | paste -sd '|')
    if [[ -z $entries ]]; then
      if [[ -n $(touched "$folder") ]]; then
        count "$name: ctest lists no test of what is touched" 1
      else
        echo "nothing that $name runs is touched by $only"
      fi
      return
    fi
    selection=(--tests-regex "^($entries)\$")
  fi
  if [[ $folder == */tsan ]]; then runner=("${in_order[@]}"); fi
  temporary=$(mktemp -d) || {
    count "$name: no temporary folder can be made: is TMPDIR a folder that can be written?" 1
    return
  }
  : >"$record"
  # One more than there are processors: some wait, for deadlines, clocks or other programs.
  TMPDIR=$temporary ANNULUS_TEST_RECORD=$record "${runner[@]}" ctest --test-dir "$folder" \
    --parallel "$(($(nproc) + 1))" "${selection[@]}" --output-on-failure --no-tests=error >"$log" 2>&1 || status=$?

  read -r one left programs < <(bash "$root/tests/support/run/cases.sh" totals "$log" "$record")
  echo "$one passed, $left failed, $programs skipped (all output: $log)"
  passed=$((passed + one)) failed=$((failed + left)) skipped=$((skipped + programs))
  if ((one + left + programs == 0)); then count "$name: no test ran" 1; fi
  if ((status != 0 || left > 0)); then
    bash "$root/tests/support/run/cases.sh" failures "$log" "$record"
    # Everything but the lines of tests that started, passed or were skipped.
    grep -vE '^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test +#[0-9]+: .*( Passed |\*\*\*Skipped)' "$log" || true
    if ((left == 0)); then count "ctest in $folder" 1; fi
  fi
  left=$(find "$temporary" -mindepth 1 -maxdepth 1 -printf '%f ')
  rm -rf "$temporary"
  temporary=
  if [[ -n $left ]]; then count "$name: tests left files in the temporary folder: $left" 1; fi
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
  local tool filter kernels=sm80-invariant
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo 'no GPU: nothing here ran on one'
    return
  fi
  if [[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) == 9.0* ]]; then
    kernels=sm90-invariant
  fi
  check serving_on_gpu env ANNULUS_TEST_DEVICE=cuda ANNULUS_TEST_KERNELS="$kernels" \
    "$build/tests/integration_test" --gtest_filter='-*Memory*'
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

# The slowest tests of all builds, and whether one is too slow.
report_times() {
  local slow
  echo '== the slowest tests: seconds by the clock, by the processor'
  bash "$root/tests/support/run/cases.sh" slowest "$logs"/{Release,ASan,TSan}.cases
  slow=$(bash "$root/tests/support/run/cases.sh" beyond "$most_seconds" "$logs"/{Release,ASan,TSan}.cases)
  if [[ -n $slow ]]; then
    printf '%s\n' "$slow"
    count "tests that take more than $most_seconds s: make them smaller, or let tests/nightly.sh run them" 1
  fi
  echo "== time, of $SECONDS s; seed $ANNULUS_TEST_SEED"
  printf '%s\n' "${times[@]}"
}

fail() {
  echo "run.sh: $*" >&2
  exit 2
}

main() {
  local sanitizers=yes architectures path
  while (($# > 0)); do
    case $1 in
      --quick) sanitizers= ;;
      --only)
        [[ -z $only ]] || fail '--only takes one folder: run this once for each, or name the folder above them'
        path=${2-}
        if [[ $path != /* ]]; then path=$root/$path; fi
        only=$(realpath --canonicalize-missing --relative-to="$root" "$path")
        [[ $only != .* && -d $root/$only ]] ||
          fail "--only takes a folder of the sources, for example engine/memory, which '${2-}' is not"
        shift
        ;;
      *)
        sed -n '2,7s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift
  done
  cd "$root"
  mkdir -p "$logs"
  rm -f "$logs"/*.cases
  echo "ANNULUS_TEST_SEED=$ANNULUS_TEST_SEED"

  phase 'set up' bash deploy/setup.sh build session test
  phase 'the small model' fetch_small_model
  phase 'checks of the sources' check_sources
  # Kernels for the GPUs of this machine; without any for one architecture, half the time of nvcc.
  architectures=90a-real
  if nvidia-smi -L >/dev/null 2>&1; then architectures=$(bash deploy/gpu_architectures.sh); fi
  run_suite "$build" Release all -DCMAKE_CUDA_ARCHITECTURES="$architectures" \
    -DANNULUS_TESTS_ONCE="${sanitizers:+ON}"
  if [[ -z $only ]]; then phase 'GPU' check_gpu; fi
  if [[ -n $sanitizers ]]; then
    # Addresses and undefined behaviour; then threads.
    run_suite "$build/asan" ASan all_tests -DANNULUS_SANITIZE=address,undefined
    run_suite "$build/tsan" TSan all_tests -DANNULUS_SANITIZE=thread
  fi
  if [[ -n $only && -z $anything ]]; then count "no test is touched by $only" 1; fi
  report_times
  echo "$passed passed, $failed failed, $skipped skipped"
  ((failed == 0))
}

main "$@"

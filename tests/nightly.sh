#!/usr/bin/env bash
# What takes too long for tests/run.sh, hours on two cores: products of parameters whole, long
# documents, random operations by the million, what run.sh leaves out of the sanitizers' builds, the
# other architecture of GPU, planted faults. tests/BUILDS.md lists it.
#   bash tests/nightly.sh [BUILD_FOLDER [STEPS]]
#   BUILD_FOLDER   default build/, which must hold the tests
#   STEPS          only those whose names match this extended regular expression, for example
#                  'packages|fuzzers', since the fuzzers need the packages of that step
# Ends with what each step took; the exit code is 0 if none failed.
set -euo pipefail

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build}
steps=${2:-.}
tests=$build/tests
if [[ ! -e $tests/touches.txt ]]; then
  sed -n '5,8s/^# //p' "${BASH_SOURCE[0]}"
  echo "nightly.sh: $build holds no tests; build them: bash tests/run.sh --quick" >&2
  exit 2
fi
passed=0 failed=0 skipped=0
times=()
source "$root/tests/support/run/environment.sh"
temporary=$(mktemp -d)
export TMPDIR=$temporary
trap 'rm -rf --one-file-system "$temporary"' EXIT
# Otherwise only the step that runs would be ended, and the next one would start.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# step NAME COMMAND...: goes on after a failure.
step() {
  local name=$1 start=$SECONDS status=0 word=passed
  shift
  if [[ ! $name =~ $steps ]]; then return; fi
  echo "== $name"
  "$@" || status=$?
  if ((status == 0)); then
    passed=$((passed + 1))
  elif ((status == 77)); then
    skipped=$((skipped + 1))
    word=skipped
  else
    failed=$((failed + 1))
    word=FAILED
  fi
  times+=("$(printf '%6d s  %s  %s' $((SECONDS - start)) "$word" "$name")")
}

# named FILTER COMMAND...: runs the tests of a program that the filter names; fails if there are none,
# which GoogleTest takes for a success, and gives 77 if all were skipped.
named() {
  local -x GTEST_FILTER=$1
  shift
  if ! "$@" --gtest_list_tests | grep '^  ' >/dev/null; then
    echo "$*: no test has a name like $GTEST_FILTER"
    return 1
  fi
  "$@" --gtest_brief=1 "--gtest_output=json:$build/nightly.json" || return
  if ! grep --quiet '"result": "COMPLETED"' "$build/nightly.json"; then return 77; fi
}

# sanitized FOLDER SANITIZERS PROGRAM...: builds the programs there and runs each, all of its tests or
# those of $GTEST_FILTER.
sanitized() {
  local folder=$1 sanitizers=$2 program status=77 code runner=()
  shift 2
  if [[ $sanitizers == thread ]]; then runner=("${in_order[@]}"); fi
  bash "$root/deploy/build.sh" "$folder" "$@" -- -DANNULUS_BUILD_TESTS=ON -DCMAKE_BUILD_TYPE=Release \
    "-DANNULUS_SANITIZE=$sanitizers" || return
  for program in "$@"; do
    code=0
    named "${GTEST_FILTER-*}" "${runner[@]}" "$folder/tests/$program" || code=$?
    if ((code == 0 && status == 77)); then status=0; fi
    if ((code != 0 && code != 77)); then status=1; fi
  done
  return "$status"
}

# Emulated threads of a GPU have small stacks, on which looking for uses after a return takes four
# times as long.
emulated_by_asan() {
  ASAN_OPTIONS=$ASAN_OPTIONS:detect_stack_use_after_return=0 sanitized "$build/asan" address,undefined \
    kernels_cuda_test engine_device_test emulated_daemon_test bench_gpu_test
}

tools_by_asan() {
  sanitized "$build/asan" address,undefined proto_test bench_test bench_attention_test bench_demo_test \
    bench_gates_test bench_model_test bench_peak_test bench_quality_test bench_report_test bench_serve_test
}

# The rings of emulated GPUs.
emulated_by_tsan() { GTEST_FILTER='AddressesTest.*:EmulatedRing.*' sanitized "$build/tsan" thread engine_device_test; }

# Tests of the engine whose threads do what those of others do (BUT in the CMakeLists.txt of core and pages
# in tests/engine), and those of which run.sh takes some rings a day.
engine_by_tsan() {
  GTEST_FILTER='SameBitsTest.*:PolicyTest.*:MemoryTest.*:PageTierHostTest.*:EngineTest.FindsFacts*:SpeculationTest.*:ServingEngineTest.EightQuestions*' \
    ANNULUS_PRODUCTS=full sanitized "$build/tsan" thread engine_test engine_page_tier_test
}

# What run.sh runs with the address sanitizer alone.
once_in_release() {
  bash "$root/deploy/build.sh" "$build" all_tests -- -DANNULUS_TESTS_ONCE=OFF || return
  ANNULUS_INTERLEAVINGS=100000 ctest --test-dir "$build" --label-regex once --parallel "$(nproc)" \
    --output-on-failure --no-tests=error
}

# Everything that run.sh thins with the address sanitizer.
whole_by_asan() {
  ANNULUS_PRODUCTS=full sanitized "$build/asan" address,undefined kernels_cpu_test engine_runner_test \
    engine_text_test engine_gguf_test engine_scheduler_test engine_ring_test engine_test
}

# Kernels for both architectures, and how many there are; run.sh builds one.
kernels_for_all_gpus() {
  if [[ ! -x $(command -v nvcc || echo /usr/local/cuda/bin/nvcc) ]]; then
    echo 'no nvcc: nothing was built'
    return 77
  fi
  bash "$root/deploy/build.sh" "$build/gpus" kernels_gpu_test -- -DANNULUS_BUILD_TESTS=ON \
    -DCMAKE_BUILD_TYPE=Release && bash "$root/tests/checks/instances.sh" "$build/gpus/tests/kernels_gpu_test"
}

step 'tests without sanitizers that run.sh runs with them' once_in_release
ANNULUS_PRODUCTS=full step 'products of parameters, kernels' named '*' "$tests/kernels_cuda_test"
ANNULUS_PRODUCTS=full step 'products of parameters, engine' named '*' "$tests/engine_device_test"
ANNULUS_EXACTNESS=full step 'ring settings, whole product' named '*WholeProduct*' "$tests/engine_ring_test"
ANNULUS_PRODUCTS=full step 'a million schedules of a ring losing workers' named '*Schedule*' \
  "$tests/engine_membership_test"
ANNULUS_FAULTS=1200 step '1,200 faults of a ring of processes' named 'RingFaultsTest.AnswersOutlive*' "$tests/ring_faults_test"
ANNULUS_PRODUCTS=full step 'ring settings, a process for each rank' named '*ExactProcesses*' "$tests/engine_ring_processes_test"
ANNULUS_EXACTNESS=full step 'policies, every ring' named 'Content.EveryRow*' "$tests/engine_runner_test"
ANNULUS_RECALL_TOKENS=65536 step 'recall of three layers' named 'Recall3.*' "$tests/engine_runner_test"
ANNULUS_RECALL_TOKENS=65536 step 'top_pages at every depth' named 'Facts.TopPagesFindThemAtEveryDepth' "$tests/engine_test"
ANNULUS_RECALL_TOKENS=1000000 step 'a million tokens, two layers' named 'Facts.*TwoLayers' "$tests/engine_test"
ANNULUS_RECALL_TOKENS=1000000 step 'passages of a document of a million tokens' named 'EvidenceTruth.ThePlanted*' "$tests/engine_test"
ANNULUS_RECALL_TOKENS=1000000 step 'a million tokens over four processes, one killed' named 'LongRingTest.*' "$tests/workers_test"
ANNULUS_MEMORY_TOKENS=1000000 step 'memory at a million tokens' named '*ServedMemory*' "$tests/integration_test"
ANNULUS_KILLS=20 step 'a prompt goes on after 20 kills' named 'KvDiskTest.APrompt*' "$tests/integration_test"
ANNULUS_PROPERTY_OPERATIONS=10000000 step 'pool and pages' named '*Property*' "$tests/engine_memory_test"
ANNULUS_ANSWER_MUTATIONS=1000000 step 'mutations of answers' named '*Mutations*' "$tests/engine_text_answer_test"
ANNULUS_STRESS_REQUESTS=2000 step 'requests of all kinds' "$tests/stress_test"
step 'emulated GPUs, address sanitizer' emulated_by_asan
step 'tools, address sanitizer' tools_by_asan
step 'tables, families and vocabularies, whole, address sanitizer' whole_by_asan
step 'emulated GPUs, thread sanitizer' emulated_by_tsan
step 'policies and memory of the engine, thread sanitizer' engine_by_tsan
step 'kernels for all GPUs' kernels_for_all_gpus
step 'packages of what follows' bash "$root/deploy/setup.sh" nightly
step 'the first session, from the sources' bash "$root/tests/deploy/quickstart_test.sh" "$build"
step 'ids of every kind of GGUF vocabulary, by the package tokenizers' python3 \
  "$root/tests/engine/gguf/tokenizer_ids_test.py" "$build"
ANNULUS_PRODUCTS=full step 'answers to 200 schemas, 1000 seeds each' python3 \
  "$root/tests/server/http/structured_answers_test.py" "$build"
ANNULUS_PRODUCTS=full step 'the same by the daemon, 20 seeds each' python3 \
  "$root/tests/server/http/structured_test.py" "$build"
step 'masks beside llguidance, 10,000 walks' python3 \
  "$root/tests/engine/grammar/masks_beside_llguidance_test.py" "$build"
step 'hostile clients, a minute each' python3 "$root/tests/abuse/abuse_test.py" "$build" 60
step 'programs that speak HTTP' python3 "$root/tests/server/http/other_clients_test.py" "$build"
step 'the page for people, by Chromium' python3 "$root/tests/server/http/page_test.py" "$build"
step 'programs that evaluate and measure' python3 "$root/tests/server/http/evaluators_test.py" "$build"
step 'random configurations of every family, 10 minutes' python3 "$root/tests/golden/random_configurations.py" "$build"
step 'fuzzers, 10 minutes each' bash "$root/tests/fuzz/run.sh" "$build" 600
step 'Debian package, installed and purged' bash "$root/tests/deploy/package_test.sh" "$build"
step 'panels, by a real Prometheus' env PATH="$PATH:$build/tools/usr/bin" python3 "$root/tests/deploy/panels_test.py" "$build"
step 'every alert, caused' env PATH="$PATH:$build/tools/usr/bin" python3 "$root/tests/deploy/alerts_test.py" "$build"
step 'tools for Kubernetes' bash "$root/tests/deploy/fetch_kubernetes_tools.sh" "$build/kubernetes-tools"
step 'Kubernetes: kustomize and the chart' python3 "$root/tests/deploy/kubernetes_test.py" "$build" "$build/kubernetes-tools"
step 'a ring by Slurm' bash "$root/tests/deploy/slurm_test.sh" "$build"
step 'a ring of four network namespaces' python3 "$root/tests/deploy/namespaces_test.py" "$build"
step 'client library, installed' bash "$root/tests/deploy/client_library_test.sh" "$build"
step 'ten commands of deploy/README.md' bash "$root/tests/deploy/walk_test.sh" "$build"
step 'container, built and run' bash "$root/tests/deploy/container_test.sh" "$build"
step 'planted faults' bash "$root/tests/faults.sh" "$build"

if ((passed + failed + skipped == 0)); then
  echo "nightly.sh: no step has a name like '$steps'" >&2
  exit 2
fi
echo "== time; seed $ANNULUS_TEST_SEED"
printf '%s\n' "${times[@]}"
echo "$passed passed, $failed failed, $skipped skipped"
((failed == 0))

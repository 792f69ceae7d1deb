#!/usr/bin/env bash
# Builds the fuzzers with clang and runs each: bash tests/fuzz/run.sh BUILD SECONDS [NAME...]
# BUILD/fuzz keeps, for each, the inputs that reached new code (corpus/NAME), where the next run goes
# on, and what broke it (NAME-crash-*, NAME-timeout-*, NAME-oom-*): give such a file to the program
# as its argument.
# Skipped (77) without clang and its libFuzzer. The exit code is 0 if nothing was found.
set -euo pipefail

if (($# < 2)) || [[ $1 == -* ]] || [[ ! $2 =~ ^[1-9][0-9]*$ ]]; then
  sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1/fuzz
seconds=$2
shift 2
names=("$@")
if ((${#names[@]} == 0)); then
  names=(chat_template_fuzz gguf_fuzz grammar_fuzz plan_codec_fuzz read_fuzz safetensors_header_fuzz tokenizer_json_fuzz
    wire_fuzz)
fi

if ! printf 'extern "C" int LLVMFuzzerTestOneInput(const char*, long) { return 0; }' |
  clang++ -fsanitize=fuzzer -x c++ - -o /dev/null 2>/dev/null; then
  echo 'fuzz: no clang with libFuzzer here: nothing was run' >&2
  exit 77
fi
bash "$root/deploy/build.sh" "$build" fuzzers -- -DANNULUS_BUILD_FUZZERS=ON -DANNULUS_BUILD_TESTS=ON \
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER=clang++ -DANNULUS_SANITIZE=address,undefined
"$build/fuzz/fuzz_seeds" "$build/seeds"

status=0
for name in "${names[@]}"; do
  echo "== $name, $seconds s"
  mkdir -p "$build/corpus/$name"
  # An input that takes longer than 10 s or more than 2 GiB is a finding, too.
  if "$build/fuzz/$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -print_final_stats=1 -verbosity=0 -artifact_prefix="$build/$name-" \
    "$build/corpus/$name" "$build/seeds/$name" >"$build/$name.log" 2>&1; then
    grep '^stat::' "$build/$name.log"
  else
    status=1
    grep -v NEW_FUNC "$build/$name.log" | tail -n 80
  fi
done
exit "$status"

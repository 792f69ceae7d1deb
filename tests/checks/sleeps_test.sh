#!/usr/bin/env bash
# Tries sleeps.sh on small trees.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/sleeps.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STATUS LISTED FILE LINE...: what the check says of a tree with these lines in one file, and
# that list.
expect() {
  local status=0 wanted=$1 listed=$2 file=$3
  shift 3
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$file")" "$tree/tests"
  printf '# Sleeps\n\n%s\n' "$listed" >"$tree/tests/SLEEPS.md"
  printf '`server/b_test.cc` 3\n' >"$tree/tests/README.md"
  printf '%s\n' "$@" >"$tree/$file"
  output=$(bash "$check" "$tree") || status=$?
  if [[ $status != "$wanted" ]] || { ((status != 0)) && [[ $output != *"$file"* ]]; }; then
    echo "expected $wanted, got $status: $listed: $file: $*: $output"
    failures=$((failures + 1))
  fi
}

one='| `engine/a_test.cc` 1 | a reason |'
expect 0 '' tests/engine/a_test.cc 'int asleep = 0;  // without sleeps'
expect 0 '' engine/a.cc 'std::this_thread::sleep_for(kPoll);'
expect 1 '' tests/engine/a_test.cc '  std::this_thread::sleep_for(milliseconds(5));'
expect 1 '' tests/engine/a_test.cc '  std::this_thread::sleep_until(deadline);'
expect 1 '' tests/engine/a_test.h 'usleep(100);'
expect 1 '' tests/deploy/a_test.py '        time.sleep(0.1)'
expect 1 '' tests/deploy/a_test.py 'from time import sleep as rest'
expect 1 '' tests/kernels/a_test.cuh 'clock_nanosleep (CLOCK_MONOTONIC, 0, &time, nullptr);'
expect 1 '' tests/deploy/a_test.sh '  sleep 0.5'
expect 1 '' tests/deploy/a_test.sh 'sleep  .5'
expect 1 '' tests/deploy/a_test.sh 'sleep "$seconds"'
expect 1 '' tests/deploy/a_test.sh 'sleep $1'
expect 1 '' tests/deploy/a_test.sh 'program & sleep infinity'
expect 0 '' tests/deploy/a_test.py 'sleep = int(values["sleep"])'
expect 0 "$one" tests/engine/a_test.cc 'std::this_thread::sleep_for(kTime);'
expect 1 "$one" tests/engine/a_test.cc 'std::this_thread::sleep_for(kTime);' 'std::this_thread::sleep_for(kTime);'
expect 1 "$one" tests/engine/a_test.cc 'int x = 0;'
expect 0 '| `engine/a_test.cc` 2 | a reason |' tests/engine/a_test.cc 'sleep(1);' 'sleep(2);'

if ((failures > 0)); then exit 1; fi
echo "every sleep that is not listed was reported"

#!/usr/bin/env bash
# Tries registered.sh on small trees.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/registered.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STATUS FILE LINE: what the check says of a tree with that file, if tests/a/CMakeLists.txt has
# that line.
expect() {
  local status=0
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/tests/a" "$tree/$(dirname "$2")"
  touch "$tree/$2"
  echo 'bash tests/a/run_test.sh' >"$tree/tests/run.sh"
  echo 'bash tests/a/night_test.py' >"$tree/tests/nightly.sh"
  echo "$3" >"$tree/tests/a/CMakeLists.txt"
  output=$(bash "$check" "$tree") || status=$?
  if [[ $status != "$1" ]] || { ((status != 0)) && [[ $output != "$2: "* ]]; }; then
    echo "expected $1, got $status: $2: $3: $output"
    failures=$((failures + 1))
  fi
}

expect 0 tests/a/one_test.cc 'annulus_test(a_test SOURCES one_test.cc)'
expect 0 tests/a/b/one_test.cc 'annulus_test(a_test SOURCES b/one_test.cc)'
expect 0 tests/b/one.cc 'annulus_test(a_test SOURCES ../b/one.cc)'
expect 0 tests/a/one_fuzz.cc 'foreach(name one_fuzz)'
expect 0 tests/a/one_test.sh 'annulus_script_test(a COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/one_test.sh)'
expect 0 tests/a/run_test.sh ''
expect 0 tests/a/night_test.py ''
expect 1 tests/a/one_test.cc 'annulus_test(a_test SOURCES another_one_test.cc)'
expect 1 tests/b/one_test.cc 'annulus_test(a_test SOURCES one_test.cc)'
expect 1 tests/a/run_test.cc ''
expect 1 tests/a/one_test.sh ''
expect 1 tests/checks/one.sh ''

if ((failures > 0)); then exit 1; fi
echo "every test that nothing runs was reported"

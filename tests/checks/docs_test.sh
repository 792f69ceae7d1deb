#!/usr/bin/env bash
# Tries docs.sh on small trees.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/docs.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STATUS WORD PAGE LINE...: what the check says of a tree whose page has these lines: WORD, if
# it fails.
expect() {
  local status=0 wanted=$1 word=$2 page=$3 output
  shift 3
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/engine" "$tree/bench/results"
  printf '# Engine\n\n## The "same" bits, on `every` ring\n' >"$tree/engine/README.md"
  echo 'command->add_option("--top-p"); counter("requests_total"); add_executable(tool annulus-bench);' >"$tree/engine/a.cc"
  printf '%s\n' "$@" >"$tree/$page"
  output=$(bash "$check" "$tree") || status=$?
  if [[ $status != "$wanted" ]] || { ((status != 0)) && [[ $output != *"$word"* ]]; }; then
    echo "expected $wanted $word, got $status: $page: ${1:0:60}: $output"
    failures=$((failures + 1))
  fi
}

long=$(printf 'x%.0s' {1..12300})
mapfile -t lines < <(seq 121)

expect 0 '' README.md 'see [engine](engine/README.md), [bits](engine/README.md#the-same-bits-on-every-ring)'
expect 1 engine/gone.md README.md 'see [engine](engine/gone.md)'
expect 1 '#the-same-bits' README.md 'see [bits](engine/README.md#the-same-bits)'
expect 0 '' README.md '# A b' 'see [here](#a-b) and [elsewhere](https://example.org/x#y)'
expect 1 '#a-c' README.md '# A b' 'see [here](#a-c)'
expect 0 '' CHANGELOG.md 'see [bits](engine/README.md#as-it-was)'
expect 0 '' README.md '`--top-p`, `build/annulus-bench`, `annulus_requests_total`'
expect 1 --top-q README.md '`--top-q`'
expect 1 build/annulus-bend README.md '`build/annulus-bend`'
expect 1 annulus_request_total README.md '`annulus_request_total`'
expect 1 'bytes of ./engine/LONG.md' engine/LONG.md "$long"
expect 0 '' bench/results/LONG.md "$long"
expect 1 'lines of ./README.md' README.md "${lines[@]}"
expect 0 '' README.md "${lines[@]:0:120}"

if ((failures > 0)); then exit 1; fi
echo "every name that is not there and every long page was reported"

#!/usr/bin/env bash
# Tries instances.sh on planted symbols and pages: what is allowed passes, and every violation is
# reported.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/instances.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# An nm that prints the program, which is a list of symbols.
printf '#!/bin/sh\ncat "$2"\n' >"$tree/nm"
chmod +x "$tree/nm"

# plant KERNELS ROW...: a program of so many kernels, as nvcc names what belongs to them, and a page
# whose table has these numbers.
plant() {
  local kernels=$1 i
  shift
  for ((i = 0; i < kernels; ++i)); do
    local stub="__device_stub__ZN7annulus4cuda15Kernel${i}(annulus::cuda::Arguments const&)"
    printf '00000000007cd5e8 %s\n' "T $stub" "t $stub [clone .cold]" "b $stub::__handle" \
      "b $stub::__tmp" "b guard variable for $stub::__tmp" "u vtable for annulus::Kernel$i"
  done >"$tree/program"
  {
    printf '%s\n' '## Others' '| shape | instances |' '|---|---|' '| of another table | 7 |' \
      '## Instances' '| kernel | instances |' '|---|---|'
    printf '| of {one, two} | %s |\n' "$@"
    printf '%s\n' '## Pages' '| behind | 5 |'
  } >"$tree/page.md"
}

run() { NM=$tree/nm bash "$check" "$tree/program" "$tree/page.md" 2>&1; }

expect_allowed() {
  plant "$@"
  if ! output=$(run); then
    echo "allowed, but reported: $*: $output"
    failures=$((failures + 1))
  fi
}

# expect_reported TEXT KERNELS ROW...
expect_reported() {
  local text=$1
  shift
  plant "$@"
  if output=$(run) || [[ $output != *"$text"* ]]; then
    echo "planted, but not reported: $*: $output"
    failures=$((failures + 1))
  fi
}

expect_allowed 1 1
expect_allowed 48 18 9 21
expect_reported '49 kernel instances' 49 18 9 22
expect_reported 'Kernel48' 49 49
expect_reported '47 kernel instances' 47 18 9 21
expect_reported 'lists 47' 48 18 9 20
expect_reported 'no kernel was found' 0 0

if ((failures > 0)); then exit 1; fi
echo "every planted violation was reported"

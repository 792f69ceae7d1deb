#!/usr/bin/env bash
# Runs a googletest program, every test in a process of its own: bash bench/gpu/cases.sh PROGRAM SECONDS LOG
# So one that ends its process, or what a GPU has for it, takes no other along. Sixteen run at a time; all
# of them take at most SECONDS and 15 more. The first line says how many passed, each further one
# what is wrong, if anything is.
set -uo pipefail

program=$1 seconds=$2 log=$3
if ! timeout -k 5 10 "$program" --gtest_list_tests >"$log" 2>&1; then
  echo "no test ran"
  tail -1 "$log"
  exit
fi
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT

# "Suite." at the beginning of a line, then "  Test" or "  Test/parameter  # what it is".
awk '/^[^ ]+\.( |$)/ {suite = $1} /^  [^ ]/ && suite {print suite $1}' "$log" >"$parts/all"
# All parameters of a test go together.
sed 's,\(\..*\)/.*,\1/*,' "$parts/all" | uniq |
  timeout -k 5 "$seconds" xargs -P 16 -I '{}' bash -c \
    '"$0" --gtest_filter="$1" >"$2/${1//[^A-Za-z0-9]/_}.log" 2>&1' "$program" '{}' "$parts"
cat "$parts"/*.log >>"$log"

# A test that ended says so; one that ended its process, or was cut off, says nothing more.
awk '
  FILENAME != ARGV[2] {all[$1]; ++count; next}
  /^\[ RUN / {begun[$4]}
  /^\[       OK \] / {done[$4]; ++passed}
  /^\[  SKIPPED \] .* ms\)$/ {done[$4]; ++skipped}
  /^\[  FAILED  \] .* ms\)$/ {sub(",", "", $4); failed[$4]}
  END {
    print passed + 0 " of " count " tests passed, " skipped + 0 " were skipped"
    if (!passed) print "no test passed"
    for (test in all) {
      if (test in done) continue
      print test " " (test in failed ? "failed" : test in begun ? "did not end" : "did not begin")
    }
  }' "$parts/all" "$log"

#!/usr/bin/env bash
# What the records of a test run say (tests/support/main.cc tells their form).
#   cases.sh totals CTEST-LOG RECORD     how many passed, failed and were skipped: three numbers
#   cases.sh failures CTEST-LOG RECORD   a line for each that failed
#   cases.sh slowest RECORD...           the 30 slowest: seconds by the clock, by the processor, whose
#   cases.sh beyond SECONDS RECORD...    those that took longer by both
# RECORD is BUILD.cases. Each test of a program counts, and each other entry of ctest. A program that
# fails without a failed test of its own, say by a leak that is found at its end, counts as one.
set -euo pipefail

# Prints "passed|failed|skipped NAME WHY" for each test and entry.
results() {
  awk '
    FILENAME == ARGV[1] && $2 == "start" { open[$1 " " $3] = $1; next }
    FILENAME == ARGV[1] {
      delete open[$1 " " $3]
      if ($2 == "failed") at_fault[$1] = 1
      print $2, $1, $3
      next
    }
    FNR == 1 {
      for (test in open) {
        print "failed", test, "has not ended"
        at_fault[open[test]] = 1
      }
    }
    match($0, /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: /) {
      rest = substr($0, RLENGTH + 1)
      name = rest
      sub(/ .*/, "", name)
      result = rest ~ / Passed +[0-9.]+ sec/ ? "passed" : rest ~ /(\*\*\*Skipped|\(Disabled\)) +[0-9.]+ sec/ ? "skipped" : "failed"
      if (name !~ /\.[0-9]+$/) print result, name
      else if (result == "failed" && !(name in at_fault)) print result, name, "as a program"
    }
  ' "$2" "$1"
}

# Prints "SECONDS PROCESSOR-SECONDS BUILD PROGRAM TEST" for each test that ended.
durations() {
  local record
  for record in "$@"; do
    [[ -e $record ]] || continue
    awk -v build="$(basename "$record" .cases)" \
      'NF == 5 { sub(/\.[0-9]+$/, "", $1); print $4, $5, build, $1, $3 }' "$record"
  done
}

command=$1
shift
case $command in
  totals) results "$@" | awk '{ count[$1]++ } END { print count["passed"] + 0, count["failed"] + 0, count["skipped"] + 0 }' ;;
  failures) results "$@" | sed -n 's/^failed /FAILED: /p' ;;
  slowest)
    durations "$@" | sort --reverse --general-numeric-sort | awk 'NR <= 30 { printf "%7.1f %7.1f  %-7s  %s  %s\n", $1, $2, $3, $4, $5 }'
    ;;
  beyond)
    most=$1
    shift
    durations "$@" | awk -v most="$most" '$1 > most && $2 > most { printf "%7.1f %7.1f  %-7s  %s  %s\n", $1, $2, $3, $4, $5 }'
    ;;
  *)
    sed -n '2,9s/^# //p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

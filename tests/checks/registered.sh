#!/usr/bin/env bash
# Checks that every test runs somewhere: registered.sh [ROOT]. Some CMakeLists.txt names each source
# of a test program, by its path from there; that, tests/run.sh or tests/nightly.sh names each script
# *_test and each check. Prints each that is not named, and fails if there is one.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
found=0
names=$(mktemp)
trap 'rm -f "$names"' EXIT

# Every path in a CMakeLists.txt, from the root. One without an ending is of a source whose ending the
# CMakeLists.txt adds.
{ grep --recursive --only-matching --extended-regexp '[A-Za-z0-9_./-]+' tests --include=CMakeLists.txt || true; } |
  sed -E -e 's|CMakeLists\.txt:/?||' -e 's|.*/tests/checks/|tests/checks/|' -e ':up' -e 's|/[^/.]+/\.\./|/|' -e 't up' |
  sort --unique >"$names"

is_named() { grep --quiet --line-regexp --fixed-strings --regexp="$1" --regexp="${1%.*}" "$names"; }
is_run() { [[ $1 != *.c[cu] ]] && grep --quiet --word-regexp "$(basename "${1%.*}")" tests/run.sh tests/nightly.sh; }

while read -r path; do
  if is_named "$path" || is_run "$path"; then continue; fi
  printf '%s: nothing runs it: name it in the CMakeLists.txt of its folder, or, if it is a script, in tests/run.sh or tests/nightly.sh\n' "$path"
  found=1
done < <(find tests \( -name '*.cc' -o -name '*.cu' -o -name '*_test.sh' -o -name '*_test.py' -o -path 'tests/checks/*.sh' \) | sort)
exit "$found"

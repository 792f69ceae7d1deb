#!/usr/bin/env bash
# Plants the faults of tests/faults.txt one at a time and runs the program that must fail of each.
#   bash tests/faults.sh [BUILD_FOLDER]   default build/, built by tests/run.sh or deploy/build.sh
#   bash tests/faults.sh --check          only whether each still has its place in the sources and is
#                                         listed in tests/FAULTS.md
# A source is changed where it stands and put back at once; one with changes of your own is refused.
# The last line says how many were caught; the exit code is 0 if all were.
set -euo pipefail

unset CDPATH
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$root/build}
caught=0 missed=0
changed= original=
declare -A tried

put_back() {
  if [[ -n $changed ]]; then printf '%s' "$original" >"$changed"; fi
  changed=
}
trap put_back EXIT
# With these bash waits for the compiler before it puts back what that must not take for the newest.
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# How often the file holds the piece.
occurrences() {
  local rest=$original count=0
  while [[ $rest == *"$1"* ]]; do
    rest=${rest#*"$1"}
    count=$((count + 1))
  done
  echo "$count"
}

# Shows what the compiler says only if the build fails.
build_program() {
  local said
  said=$(bash "$root/deploy/build.sh" "$build" "$1" 2>&1) || {
    echo "$said"
    return 1
  }
}

run_program() { timeout 600 "$build/tests/$1" --gtest_brief=1 --gtest_fail_fast; }

# try FILE PROGRAM WHAT OLD NEW
try() {
  local path=$root/$1 places status=0 output
  # Without the dot the shell would drop the line ends at the end.
  original=$(cat "$path" && printf .)
  original=${original%.}
  places=$(occurrences "$4")
  if [[ $places != 1 ]]; then
    echo "MISSED: $1: '$4' is there $places times, not once: give tests/faults.txt the line as it is now"
    missed=$((missed + 1))
    return
  fi
  if [[ $build == --check ]]; then
    if grep --quiet --fixed-strings "| \`$1\` | $3 |" "$root/tests/FAULTS.md"; then
      caught=$((caught + 1))
    else
      echo "MISSED: $1: tests/FAULTS.md does not list it: $3"
      missed=$((missed + 1))
    fi
    return
  fi
  # What fails of something else catches nothing.
  if [[ -z ${tried[$2]-} ]]; then
    build_program "$2"
    tried[$2]=passes
    output=$(run_program "$2" 2>&1) || {
      tried[$2]=fails
      echo "$output"
    }
  fi
  if [[ ${tried[$2]} == fails ]]; then
    missed=$((missed + 1))
    echo "MISSED: $1: $3: $2 fails without it"
    return
  fi
  changed=$path
  printf '%s' "${original%%"$4"*}$5${original#*"$4"}" >"$path"
  build_program "$2" || {
    put_back
    missed=$((missed + 1))
    echo "MISSED: $1: $3: it does not compile"
    return
  }
  output=$(run_program "$2" 2>&1) || status=$?
  put_back
  if ((status != 0)); then
    caught=$((caught + 1))
    echo "caught: $1: $3: $(grep --text --max-count=1 -oE 'FAILED  \] [^ ,]+' <<<"$output" || echo "status $status")"
  else
    missed=$((missed + 1))
    echo "MISSED: $1: $3: $2 passes"
  fi
}

if [[ $build == -* && $build != --check || $build != --check && ! -e $build/tests/touches.txt ]]; then
  sed -n '2,6s/^# //p' "${BASH_SOURCE[0]}"
  exit 2
fi
if [[ $build != --check ]]; then
  changes=$(awk -v RS= '!/^#/ { print $1 }' "$root/tests/faults.txt" |
    xargs git -C "$root" status --porcelain -- 2>/dev/null) || true
  if [[ -n $changes ]]; then
    printf 'faults: these have changes; commit them first, or undo them if they are what a run that was killed has planted:\n%s\n' \
      "$changes" >&2
    exit 2
  fi
fi
while read -r file program; do
  if [[ -z $file || $file == '#'* ]]; then continue; fi
  if ! { read -r what && IFS= read -r old && { IFS= read -r new || [[ -n $new ]]; }; }; then
    echo "faults: $file needs four lines in tests/faults.txt; its first ones say which" >&2
    exit 2
  fi
  try "$file" "$program" "$what" "${old#- }" "${new#+ }" </dev/null
done <"$root/tests/faults.txt"
if [[ $build == --check ]]; then
  echo "$caught faults have their place, $missed do not"
else
  echo "$caught faults caught, $missed missed"
fi
((missed == 0 && caught > 0))

#!/usr/bin/env bash
# Tries what tests/run.sh counts and selects by: support/run/cases.sh, touched.awk and entries.awk.
set -euo pipefail

tools=$(cd "$(dirname "${BASH_SOURCE[0]}")/../support/run" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

# expect WHAT EXPECTED ACTUAL
expect() {
  if [[ $2 != "$3" ]]; then
    printf '%s: expected\n%s\ngot\n%s\n' "$1" "$2" "$3"
    failures=$((failures + 1))
  fi
}

cat >"$folder/Release.cases" <<'END'
good_test.0 start A.Passes
good_test.1 start A.Other
good_test.0 passed A.Passes 70.000 61.500
good_test.1 passed A.Other 100.000 2.000
bad_test.0 start B.Fails
bad_test.0 failed B.Fails 0.100 0.100
bad_test.0 start B.Waits
bad_test.0 skipped B.Waits 0.000 0.000
dead_test.0 start C.Crashes
leaky_test.0 start D.Leaks
leaky_test.0 passed D.Leaks 3.000 3.000
END
cat >"$folder/log" <<'END'
      Start  1: good_test.0
1/8 Test  #1: good_test.0 .....................   Passed   70.01 sec
2/8 Test  #2: good_test.1 .....................   Passed  100.01 sec
3/8 Test  #3: bad_test.0 ......................***Failed    0.20 sec
4/8 Test  #4: dead_test.0 .....................***Exception: SegFault  0.20 sec
5/8 Test  #5: leaky_test.0 ....................***Failed    3.20 sec
6/8 Test  #6: a_script ........................   Passed    0.20 sec
7/8 Test  #7: other_script ....................***Skipped   0.20 sec
8/8 Test  #8: lost_script .....................***Not Run   0.00 sec
END
expect totals '4 4 2' "$(bash "$tools/cases.sh" totals "$folder/log" "$folder/Release.cases")"
expect 'totals of scripts alone' '1 1 1' \
  "$(bash "$tools/cases.sh" totals <(grep script "$folder/log") /dev/null)"
expect failures "$(printf 'FAILED: %s\n' 'bad_test.0 B.Fails' 'dead_test.0 C.Crashes has not ended' \
  'leaky_test.0 as a program' 'lost_script')" \
  "$(bash "$tools/cases.sh" failures "$folder/log" "$folder/Release.cases")"
expect 'too slow' '   70.0    61.5  Release  good_test  A.Passes' \
  "$(bash "$tools/cases.sh" beyond 60 "$folder/Release.cases")"
expect 'the slowest' '  100.0     2.0  Release  good_test  A.Other' \
  "$(bash "$tools/cases.sh" slowest "$folder/Release.cases" "$folder/none.cases" | head -n 1)"

cat >"$folder/touches.txt" <<'END'
base_test engine/base tests/engine/base
engine_test engine engine/base tests/engine/core
server_test server server/config engine/base tests/server
END
cat >"$folder/scripts.txt" <<'END'
a_script deploy tests/deploy +server
b_script server/config tests/server/config
END
# touched FOLDER [FILE]
touched() {
  awk -v folder="$1" -v only="$folder/${2-touches}.txt" -f "$tools/touched.awk" "$folder/touches.txt" \
    "$folder/scripts.txt" | paste -sd ' '
}
expect 'a folder' 'server_test' "$(touched server/config)"
expect 'a folder of folders' 'base_test engine_test server_test' "$(touched engine)"
expect 'a folder of headers' 'server_test' "$(touched server/config/deeper)"
expect 'a folder of tests' 'engine_test' "$(touched tests/engine/core)"
expect 'no part of a name' '' "$(touched serv)"
expect 'a folder of scripts' a_script "$(touched deploy/deeper scripts)"
expect 'no program of it' '' "$(touched tests/deploy)"
expect 'a folder of both' b_script "$(touched server/config scripts)"
expect 'no script of a folder of programs' '' "$(touched tests/engine/base scripts)"
expect 'no script of a folder of headers' '' "$(touched tests/engine/other scripts)"

sed 's/^/  Test  #1: /' >"$folder/all" <<'END'
base_test.0
base_test.1
engine_test.0
engine_test.1
engine_test.2
server_test.0
server_test.1
a_script
END
entries() {
  awk -v folder="$1" -v seed="$2" -f "$tools/entries.awk" list=made_of "$folder/touches.txt" \
    list=touched <(touched "$1" | tr ' ' '\n') list=slow <(grep -E "$3" "$folder/all") list=all "$folder/all" | paste -sd ' '
}
expect 'nothing is slow' 'server_test.0 server_test.1' "$(entries server/config 20261127 none)"
expect 'a folder of tests, whole' 'base_test.0 base_test.1' "$(entries tests/engine/base 5 _test)"
expect 'slow ones by the seed' 'base_test.0 base_test.1 engine_test.2 server_test.1' "$(entries engine/base 5 _test)"
expect 'slow ones the next day' 'base_test.0 base_test.1 engine_test.0 server_test.0' "$(entries engine/base 6 _test)"

if ((failures > 0)); then exit 1; fi
echo "all is counted and selected as it should"

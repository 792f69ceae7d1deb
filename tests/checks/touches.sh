#!/usr/bin/env bash
# Checks the table that tests/run.sh --only reads: touches.sh BUILD-FOLDER. Each source of the project
# that the compiler read for a test program must lie in a folder that touches.txt names for it, or in
# one of those above. Prints what is missing, and fails if something is.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(cd "$1" && pwd)

# "TARGET FOLDER" of what was read, from ninja's record: a line with the object, then its sources.
ninja -C "$folder" -t deps | awk -v root="$root/" -v build="$folder/" '
  /^[^ ]/ {
    target = ""
    if (match($1, /CMakeFiles\/[^\/]+\.dir\//)) target = substr($1, RSTART + 11, RLENGTH - 16)
    next
  }
  target != "" {
    path = $1
    while (sub(/[^\/.][^\/]*\/\.\.\//, "", path));
    # Relative to the build folder, which lies below the root.
    if (sub(/^(\.\.\/)+/, "", path)) path = root path
    if (index(path, root) != 1 || index(path, build) == 1) next
    path = substr(path, length(root) + 1)
    if (path !~ /^(kernels|engine|server|client|proto|bench|tests)\//) next
    sub(/\/[^\/]*$/, "", path)
    if (!seen[target, path]++) print target, path
  }
' | awk '
  FILENAME ~ /touches.txt$/ {
    for (i = 2; i <= NF; ++i) {
      known[$i] = 1
      row[$1, $i] = 1
    }
    next
  }
  FILENAME != "-" {
    for (i = 2; i <= NF; ++i) programs[$i] = programs[$i] " " $1
    next
  }
  $1 in programs {
    path = $2
    while (!(path in known) && sub(/\/[^\/]*$/, "", path));
    count = split(programs[$1], program, " ")
    for (i = 1; i <= count; ++i) {
      if ((program[i], path) in row) continue
      print program[i] " is made of " $2 " (by " $1 "), which touches.txt does not name for it: link it, or add it to reads_" $1 " in tests/touches.cmake"
      failed = 1
    }
    checked++
  }
  END {
    if (!checked) print "nothing was checked: has the build recorded what it read?"
    exit failed || !checked
  }
' "$folder/tests/touches.txt" "$folder/tests/touches-targets.txt" -

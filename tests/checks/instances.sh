#!/usr/bin/env bash
# Checks how many kernel instances a program has that nvcc built: instances.sh PROGRAM [PAGE]. At
# most 48 are allowed, and the table "Instances" of the page (kernels/cuda/README.md) must list as
# many. Prints them where that does not hold, and fails. NM: the nm to use.
set -euo pipefail

most=48
program=$1
page=${2:-$(dirname "${BASH_SOURCE[0]}")/../../kernels/cuda/README.md}

# For each kernel that the host can launch nvcc makes a stub with a variable `__handle`. Kernels of
# one name in several files differ in the file's part of the stub's.
instances=$("${NM:-nm}" --demangle "$program" |
  sed -n 's/.* __device_stub__\(.*\)::__handle$/\1/p' | sort --unique)
count=$(grep --count . <<<"$instances" || true)

listed=$(awk '
  /^## / { inside = $0 == "## Instances" }
  inside && /^\|.*\| *[0-9]+ *\|$/ { split($0, cells, "|"); sum += cells[length(cells) - 1] }
  END { print sum + 0 }
' "$page")

problem=
if ((count == 0)); then
  problem="no kernel was found in $program: did nvcc build it, and name its stubs as before?"
elif ((count > most)); then
  problem="$count kernel instances in $program; at most $most are allowed"
elif ((count != listed)); then
  problem="$count kernel instances in $program; $page lists $listed"
fi
if [[ -n $problem ]]; then
  printf '%s\n' "$problem" ${instances:+"$instances"}
  exit 1
fi
echo "$count kernel instances of at most $most"

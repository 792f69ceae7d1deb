#!/usr/bin/env bash
# Configures and builds: deploy/build.sh FOLDER TARGET... [-- CMAKE-OPTION...]. As many compilers run
# at once as there are processors, or fewer if the memory is too small for them.
set -euo pipefail

if (($# < 2)) || [[ $1 == -* ]]; then
  sed -n '2,3s/^# //p' "${BASH_SOURCE[0]}"
  exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$1
targets=()
shift
while (($# > 0)) && [[ $1 != -- ]]; do
  targets+=("$1")
  shift
done
if (($# > 0)); then shift; fi

fail() {
  printf 'build: %s\n' "$*" >&2
  exit 1
}

# A file that includes gRPC takes about 1 GiB to compile, with a sanitizer somewhat more.
jobs=$(nproc)
bearable=$(($(bash "$root/deploy/available_memory.sh") / (1280 * 1024 * 1024)))
if ((bearable < 1)); then bearable=1; fi
if ((bearable < jobs)); then jobs=$bearable; fi

cache=$folder/CMakeCache.txt
if [[ -e $cache ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$cache"; then
  fail "$folder was made for another folder of sources: remove it and run this again"
fi
mkdir -p "$folder"
# CMake configures at every call: it takes seconds and picks up changed options. Each compiler takes
# several sources at a time, which halves the time of a build from nothing.
cmake -S "$root" -B "$folder" -G Ninja -DCMAKE_UNITY_BUILD=ON "$@" >"$folder/configure.log" 2>&1 || {
  cat "$folder/configure.log" >&2
  fail "cmake cannot configure (its message is above). After an upgrade of the system, remove
  $folder and run this again."
}
# Lets ccache, if installed, share its results between all checkouts of these sources.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1
quiet=()
if [[ ! -t 1 ]]; then quiet=(--quiet); fi
ninja -C "$folder" -j "$jobs" "${quiet[@]}" "${targets[@]}" ||
  fail "the build failed (the compiler's message is above). If it says 'Killed', memory ran out:
  close other programs and run this again; what was built is kept."

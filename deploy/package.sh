#!/usr/bin/env bash
# Makes the Debian package: deploy/package.sh [FOLDER] [-- CMAKE-OPTION...]. FOLDER is the build folder,
# default build/; the last line is the path of the package.
#   deploy/package.sh build -- -DANNULUS_MAINTAINER='A Name <name@your.domain>'
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
folder=$root/build
if (($# > 0)) && [[ $1 != -* ]]; then
  folder=$(realpath --canonicalize-missing "$1")
  shift
fi
if (($# > 0)) && [[ $1 != -- ]]; then
  sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}"
  exit 2
fi
if (($# > 0)); then shift; fi
bash "$root/deploy/build.sh" "$folder" programs -- "$@"
umask 022
cd "$folder"
rm -f annulus_*.deb
cpack -G DEB >package.log 2>&1 || {
  cat package.log >&2
  exit 1
}
ls "$folder"/annulus_*.deb

#!/usr/bin/env bash
# Tries wording.sh on small trees: every planted offence must be reported, and nothing else.
set -euo pipefail

check=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/wording.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0

# expect STATUS FILE LINE: what the check says of a tree with that one line.
expect() {
  local status=0
  rm -rf "${tree:?}"/*
  mkdir -p "$tree/$(dirname "$2")"
  printf '%s\n' "$3" >"$tree/$2"
  output=$(bash "$check" "$tree") || status=$?
  if [[ $status != "$1" ]] || { ((status != 0)) && [[ $output != *"$2:1:"* ]]; }; then
    echo "expected $1, got $status: $2: $3: $output"
    failures=$((failures + 1))
  fi
}

expect 0 engine/a.cc 'int todo = 0;'
expect 1 engine/a.cc '// TODO: more'
expect 1 deploy/a.sh 'cd /home/me/annulus'
expect 1 engine/a.cc 'std::regex pattern(text);'
expect 1 engine/a.cc '#include "absl/synchronization/mutex.h"'
expect 1 engine/a.cc 'if (policy.kind == PolicyKind::kDense) return;'
expect 1 server/a.cc '    case PolicyKind::kAuto:'
expect 0 engine/a.h '  PolicyKind kind = PolicyKind::kDense;'
expect 0 tests/a.cc 'if (policy.kind == PolicyKind::kDense) return;'
expect 0 tests/a.cc 'const TempDirectory folder;'
expect 0 tests/a.sh 'folder=$(mktemp -d)'
expect 1 tests/a.cc 'std::string path = ::testing::TempDir() + "/file";'
expect 1 tests/a.cc 'auto path = std::filesystem::temp_directory_path() / "file";'
expect 1 tests/a.cc 'std::ofstream file("/tmp/file");'
expect 1 tests/a.cc 'std::ofstream file("/dev/shm/file");'
expect 1 tests/a.sh 'echo one >/tmp/file'
expect 1 tests/a.py "open('/var/tmp/file', 'w')"
expect 1 tests/a.sh 'folder=${TMPDIR:-/var}/file'
expect 1 tests/a.sh 'folder="$TMPDIR/file"'
expect 1 tests/a.sh 'cd /tmp'
expect 1 tests/a.sh 'cp report.txt /tmp'
expect 1 tests/a.sh 'export TMPDIR=/tmp'
expect 1 tests/a.sh 'name=$(mktemp -u)'
expect 1 tests/a.py 'path = tempfile.gettempdir() + "/file"'
expect 1 tests/a.py 'path = tempfile.mktemp()'
expect 1 tests/a.py 'path = os.environ["TMPDIR"] + "/file"'
expect 0 tests/a.sh 'TMPDIR=$folder program'
expect 0 tests/a.sh 'podman run --tmpfs /tmp --cap-drop ALL'
expect 0 tests/a.sh 'ls "$root/tmp/file" build/tmp/file'

if ((failures > 0)); then exit 1; fi
echo "every planted offence was reported"

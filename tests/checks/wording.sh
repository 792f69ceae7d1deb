#!/usr/bin/env bash
# Checks the text of all sources: wording.sh [ROOT]. Prints each offending line and fails if there
# is one.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
found=0

# forbid REASON PATTERN [FOLDER]: no source line may match the extended regular expression.
forbid() {
  local lines status=0
  lines=$(grep --recursive --line-number --binary-files=without-match --extended-regexp "$2" \
    "${3:-.}" --exclude-dir=.git --exclude-dir='build*' --exclude-dir=golden \
    --exclude=.git --exclude='wording*.sh' --exclude=temp_directory.h) || status=$?
  if ((status == 1)); then return; fi  # 2 is an error
  printf '%s:\n%s\n' "$1" "$lines"
  found=1
}

forbid 'unfinished work' '\b(TODO|FIXME|HACK|XXX)\b'
forbid 'a path of one machine' '(^|[^A-Za-z0-9_.}/])/(home|root|work|mnt|Users|workspace)/'
forbid 'std::regex overflows the stack on long input: use PCRE2' 'std::(basic_)?regex'
forbid 'the thread sanitizer cannot see the locks of the Debian package of Abseil: use std::mutex' \
  'include "absl/synchronization/'

# A test of the kind is one more file to change for every policy that is added.
for folder in engine server bench; do
  if [[ -d $folder ]]; then
    forbid 'a policy is asked what it does (engine/sparse/policy.h), not which one it is' \
      '(==|!=|\bcase) *PolicyKind::' "$folder"
  fi
done

# Tests run side by side, several times on one machine.
if [[ -d tests ]]; then
  forbid 'a test owns its folder: testing::TempDirectory, not a name that others have too' \
    'TempDir\(\)|temp_directory_path|P_tmpdir|tmpnam|gettempdir|mktemp -u|tempfile\.mktemp|\$\{?TMPDIR|environ.*TMPDIR|["=](/var)?/tmp|(^|[^A-Za-z0-9_.}/])(/var)?/tmp/|(cd|cp|mv|>) *[^ ]* /tmp\b|/dev/shm' tests
fi
exit "$found"

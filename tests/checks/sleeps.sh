#!/usr/bin/env bash
# Checks that tests sleep only where the section "Sleeps" of tests/README.md says so: sleeps.sh
# [ROOT]. Prints the lines of each file that sleeps more or less often than it says, and fails if
# there is one.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
found=0
pattern='sleep_(for|until)|SleepFor|(^|[^A-Za-z0-9_])(u|(clock_)?nano|thrd_)?sleep *\(|(^|[^A-Za-z0-9_"'\''])sleep +["$.0-9i]|import sleep'

# sleeps OPTION PATH: grep for lines that sleep.
sleeps() {
  grep --recursive "$1" --extended-regexp "$pattern" "$2" --include='*.cc' --include='*.h' --include='*.cu*' \
    --include='*.sh' --include='*.py' --exclude='sleeps*.sh' || true
}

declare -A listed counted
while read -r file count; do
  listed[$file]=$count
done < <(sed -n '/^## Sleeps$/,/^## /p' tests/README.md | grep --only-matching --extended-regexp \
  '`[A-Za-z0-9_./]+` [0-9]+' | tr -d '`')
while IFS=: read -r file count; do
  if ((count > 0)); then counted[${file#tests/}]=$count; fi
done < <(sleeps --count tests)

for file in "${!listed[@]}" "${!counted[@]}"; do
  if [[ ${listed[$file]:-0} == "${counted[$file]:-0}" ]]; then continue; fi
  printf 'tests/%s: %s lines sleep, and tests/README.md says why of %s: wait for a condition, or let a clock of the test decide\n' \
    "$file" "${counted[$file]:-0}" "${listed[$file]:-0}"
  if [[ -e tests/$file ]]; then sleeps --line-number "tests/$file"; fi
  listed[$file]=${counted[$file]:-0}  # said once
  found=1
done
exit "$found"

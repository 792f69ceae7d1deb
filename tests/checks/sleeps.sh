#!/usr/bin/env bash
# Checks that tests sleep only where tests/SLEEPS.md says so: sleeps.sh [ROOT]. Prints the lines of
# each file that sleeps more or less often than the page says, and fails if there is one.
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
done < <(grep --only-matching --extended-regexp '`[A-Za-z0-9_./]+` [0-9]+' tests/SLEEPS.md | tr -d '`')
while IFS=: read -r file count; do
  if ((count > 0)); then counted[${file#tests/}]=$count; fi
done < <(sleeps --count tests)

for file in "${!listed[@]}" "${!counted[@]}"; do
  if [[ ${listed[$file]:-0} == "${counted[$file]:-0}" ]]; then continue; fi
  printf 'tests/%s: %s lines sleep, and tests/SLEEPS.md says why of %s: wait for a condition, or let a clock of the test decide\n' \
    "$file" "${counted[$file]:-0}" "${listed[$file]:-0}"
  if [[ -e tests/$file ]]; then sleeps --line-number "tests/$file"; fi
  listed[$file]=${counted[$file]:-0}  # said once
  found=1
done
exit "$found"

#!/usr/bin/env bash
# Checks that the pages of the repository name what exists, and that people can read them to the end:
# docs.sh [ROOT]. Links to files and headings, flags, programs, metrics; sizes of pages. Prints each
# name that nothing has and each page that is too long, and fails if there is one.
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/../..}"
found=0
words=$(mktemp)
trap 'rm -f "$words"' EXIT

# Every word of the sources, dashes included: --top-p is there as top-p.
grep --recursive --no-filename --only-matching --binary-files=without-match --extended-regexp \
  '[A-Za-z0-9_]+(-[A-Za-z0-9_]+)*' . --include='*.cc' --include='*.h' --include='*.cu' \
  --include='*.cuh' --include='*.py' --include='*.sh' --include='*.txt' --include='*.cmake' \
  --exclude='docs*.sh' --exclude-dir=.git --exclude-dir='build*' | sort --unique >"$words"
# Flags of programs that pages name and no source here runs.
printf '%s\n' python_out grpc_python_out >>"$words"

# names PATTERN: "page:name" of what matches the extended regular expression in any page.
names() {
  grep --recursive --only-matching --extended-regexp --regexp="$1" . --include='*.md' \
    --exclude-dir=.git --exclude-dir='build*' | sort --unique || true
}

# missing KIND PAGE NAME
missing() {
  printf '%s: there is no %s %s\n' "$2" "$1" "$3"
  found=1
}

is_word() { grep --quiet --line-regexp --fixed-strings --regexp="$1" "$words"; }

while IFS=: read -r page link; do
  target=${link#*\(}
  target=${target%% *}  # a title may follow
  if [[ -z $target || $target == *://* ]]; then continue; fi
  if [[ ! -e $(dirname "$page")/$target ]]; then missing file "$page" "$target"; fi
done < <(names '\]\([^)#]*')

# anchors PAGE: what links to the headings of the page say after the #.
anchors() {
  sed -n 's/^##* //p' "$1" | tr '[:upper:]' '[:lower:]' | tr -cd 'a-z0-9_ \n-' | tr ' ' '-'
}

while IFS=: read -r page link; do
  link=${link#*\(}
  target=${link%%#*}
  target=$(dirname "$page")/${target:-$(basename "$page")}
  # The list of changes names pages as they were; a missing file is reported above.
  if [[ $link == *://* || $page == ./CHANGELOG.md || ! -f $target ]]; then continue; fi
  if ! anchors "$target" | grep --line-regexp --fixed-strings --regexp="${link#*#}" >/dev/null; then
    missing heading "$page" "$link"
  fi
done < <(names '\]\([^) ]*#[^) ]+')

while IFS=: read -r page name; do
  if ! is_word "${name##*--}"; then missing flag "$page" "--${name##*--}"; fi
done < <(names '(^|[^A-Za-z0-9_-])--[a-z][a-z0-9_]*(-[a-z0-9_]+)*')

while IFS=: read -r page name; do
  if ! is_word "${name##*/}"; then missing program "$page" "$name"; fi
done < <(names 'build/(tests/[a-z0-9_]+|annulus[a-z]*(-[a-z]+)*|[a-z]+-lab)')

while IFS=: read -r page name; do
  # The prefix stands in one place of the sources, before all names of metrics.
  if ! is_word "$name" && ! is_word "${name#annulus_}"; then missing metric "$page" "$name"; fi
done < <(names '\<annulus_[a-z_]+')

# too_long WHAT IS MOST
too_long() {
  if (($2 <= $3)); then return; fi
  printf '%s: %s, and at most %s are allowed: part or shorten it\n' "$1" "$2" "$3"
  found=1
}

# Tables of measurements and the list of changes may be long.
readmes=0
while IFS= read -r page; do
  bytes=$(wc --bytes <"$page")
  if [[ $page == */README.md ]]; then readmes=$((readmes + bytes)); fi
  if [[ $page == ./bench/results/* || $page == ./CHANGELOG.md ]]; then continue; fi
  too_long "bytes of $page" "$bytes" 12288
done < <(find . \( -name .git -o -name 'build*' \) -prune -o -name '*.md' -print)
too_long 'bytes of all README.md' "$readmes" 163840
if [[ -f README.md ]]; then too_long 'lines of ./README.md' "$(wc --lines <README.md)" 120; fi

exit "$found"
